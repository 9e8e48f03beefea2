"""Options that `at-infer score` and `at-infer watch` share."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from at_infer import config
from at_infer.errors import ConfigError

INPUT, SCORE, ENGINE, RUN = "Input", "Score and threshold", "Engine", "Run"

EnginePath = Annotated[
    Path, typer.Option(help="model.onnx, model.associations.onnx or model.trt.", rich_help_panel=ENGINE)
]
SeriesColumn = Annotated[
    str | None,
    typer.Option(help="Identifies the series, copied to the output. Default: the model's.", rich_help_panel=INPUT),
]
OneSeries = Annotated[
    bool,
    typer.Option(
        "--one-series", help="The input is one series, even if the training data had several.", rich_help_panel=INPUT
    ),
]
Threshold = Annotated[
    str | None,
    typer.Option(help="A number, or auto: the paper's gap statistic. Default: the model's.", rich_help_panel=SCORE),
]
Ratio = Annotated[
    float | None,
    typer.Option(help="Threshold that this fraction of the validation rows exceeds.", rich_help_panel=SCORE),
]
FalseAlarms = Annotated[
    str | None,
    typer.Option(
        help="Threshold for about so many false incidents, by the validation part: 1/day, 2/week, '1/10000 rows'.",
        metavar="RATE",
        rich_help_panel=SCORE,
    ),
]
Mode = Annotated[config.ScoreMode | None, typer.Option(help="Default: the model's.", rich_help_panel=SCORE)]
Temperature = Annotated[
    float | None,
    typer.Option(help="Softmax temperature of mode published. Default: the model's.", rich_help_panel=SCORE),
]
NormaliseErrors = Annotated[
    bool | None,
    typer.Option(
        "--normalise-errors/--no-normalise-errors",
        help="Divide each feature's error by its mean on the validation part. Default: the model's.",
        rich_help_panel=SCORE,
    ),
]
LevelOption = Annotated[
    config.Level | None,
    typer.Option(
        "--level",
        help="Of mode fusion: compare levels with the recent past, with the training data, or not at all. Default: the "
        "model's.",
        rich_help_panel=SCORE,
    ),
]
Delay = Annotated[
    int | None,
    typer.Option(
        metavar="K",
        help="Score a live row K rows late, which finds more. Default: 0, or 1 for a circular model.",
        rich_help_panel=SCORE,
    ),
]
MaxGap = Annotated[
    str | None,
    typer.Option(
        metavar="K|none",
        help="More usual steps of time than this between two rows begin the series anew. Default: the model's, 3.",
        rich_help_panel=INPUT,
    ),
]
Interval = Annotated[
    str | None,
    typer.Option(
        metavar="30s|5m|1h|none",
        help="Put the rows on a grid first: one row, of input and output, per interval. Default: the model's, or none.",
        rich_help_panel=INPUT,
    ),
]
Resample = Annotated[
    Literal["mean", "last"] | None,
    typer.Option(
        help="With --interval: the mean of the values in an interval, or the last.",
        show_default="the model's, or mean",
        rich_help_panel=INPUT,
    ),
]
NoTime = Annotated[
    bool,
    typer.Option("--no-time", help="Rows have no time, even if the training data had one.", rich_help_panel=INPUT),
]
OnBadTime = Annotated[
    Literal["error", "drop", "ignore"],
    typer.Option(
        help="A repeated or decreasing time: an error (watch says so and leaves the row out), leave the row out, or "
        "take it as it comes.",
        rich_help_panel=INPUT,
    ),
]
OnMissingFeature = Annotated[
    Literal["error", "mask"],
    typer.Option(
        help="A column that is absent, or empty for a while: as any missing value, or left out of the score.",
        rich_help_panel=INPUT,
    ),
]
Provider = Annotated[config.Provider, typer.Option(help="Where ONNX Runtime runs.", rich_help_panel=ENGINE)]
Threads = Annotated[int | None, typer.Option(help="CPU threads of the engine. Default: all.", rich_help_panel=ENGINE)]


def number_of_steps(text: str | None) -> int | None:
    """What `MaxGap` means; 0: gaps are not looked for."""
    if text is None:
        return None
    try:
        return 0 if text == "none" else int(text)
    except ValueError:
        raise ConfigError(f"max gap: {text!r} is neither a whole number nor none") from None


def number_or_auto(text: str | None) -> float | Literal["auto"] | None:
    """What `Threshold` means."""
    if text is None or text == "auto":
        return text  # type: ignore[return-value]
    try:
        return float(text)
    except ValueError:
        raise ConfigError(f"threshold: {text!r} is neither a number nor auto") from None
