"""Options of all commands that score rows: score, watch, drift."""

from pathlib import Path
from typing import Annotated, Literal

from at_infer import choices, config
from at_infer.cli.options import engine_option, input_option, score_option
from at_infer.errors import ConfigError

DEFAULT_RATES = f"{config.DEFAULT_RATE}, or {config.DEFAULT_RATE_WITHOUT_DATES} without dates"
EnginePath = Annotated[Path, engine_option(help="model.onnx, model.associations.onnx or model.trt.")]
TimeColumn = Annotated[
    str | None, input_option(help="Copied to the output, must increase within a series. Default: the model's.")
]
SeriesColumn = Annotated[
    str | None, input_option(help="Identifies the series, copied to the output. Default: the model's.")
]
OneSeries = Annotated[
    bool, input_option("--one-series", help="The input is one series, even if the training data had several.")
]
SeriesPerFile = Annotated[bool, input_option("--series-per-file", help="Each file is one series.")]
Threshold = Annotated[
    str | None, score_option(help="A number, or auto: the paper's gap statistic. Default: the model's.")
]
Ratio = Annotated[float | None, score_option(help="Threshold that this fraction of the validation rows exceeds.")]
FalseAlarms = Annotated[
    str | None,
    score_option(
        help="Threshold by the rate of false incidents on the validation part: 1/day, 2/week, '1/10000 rows'.",
        metavar="RATE",
        show_default=f"where incidents are made, {DEFAULT_RATES}",
    ),
]
Mode = Annotated[config.ScoreMode | None, score_option(help="Default: the model's.")]
Temperature = Annotated[float | None, score_option(help="Softmax temperature of mode published. Default: the model's.")]
Smooth = Annotated[
    int | None, score_option(help="Moving average of the score over this many rows. Default: the model's.")
]
NormaliseErrors = Annotated[
    bool | None,
    score_option(
        "--normalise-errors/--no-normalise-errors",
        help="Divide each feature's error by its mean on the validation part. Default: the model's.",
    ),
]
LevelOption = Annotated[
    config.Level | None,
    score_option(
        "--level",
        help="Of mode fusion: compare levels with the recent past, with the training data, or not at all. Default: the "
        "model's.",
    ),
]
Delay = Annotated[
    int | None,
    score_option(
        metavar="K", help="Score a live row K rows late, which detects more. Default: 0, or 1 with circular padding."
    ),
]
MaxGap = Annotated[
    str | None,
    input_option(
        metavar="K|none",
        help="Restart a series after a gap of more than K median time steps. Default: the model's.",
    ),
]
Interval = Annotated[
    str | None,
    input_option(
        metavar="30s|5m|1h|none",
        help="Resample first to one row per interval; the output has these rows. Default: the model's, or none.",
    ),
]
Resample = Annotated[
    config.Resample | None,
    input_option(
        help="With --interval: the mean of the values in an interval, or the last.", show_default="the model's, or mean"
    ),
]
NoTime = Annotated[bool, input_option("--no-time", help="Rows have no time, even if the training data had one.")]
OnBadTime = Annotated[
    choices.BadTime,
    input_option(
        help="Repeated or decreasing times: error (watch reports and skips the row), drop the row, or ignore the time."
    ),
]
OnMissingFeature = Annotated[
    choices.MissingFeature,
    input_option(help="An absent or empty column: treat as missing values, or leave it out of the score (mask)."),
]
Provider = Annotated[config.Provider, engine_option(help="Where ONNX Runtime runs.", envvar="AT_INFER_PROVIDER")]
Threads = Annotated[
    int | None,
    engine_option(
        help="CPU threads of the engine; with a small network, mode fusion uses one of several for views and "
        "smoothing. Default: all.",
        envvar="AT_INFER_THREADS",
    ),
]


def number_of_steps(text: str | None) -> int | None:
    """Parse `MaxGap`; 0 ignores gaps."""
    if text is None:
        return None
    try:
        return 0 if text == "none" else int(text)
    except ValueError:
        raise ConfigError(f"--max-gap: {text!r} is neither a whole number nor none") from None


def number_or_auto(text: str | None) -> float | Literal["auto"] | None:
    """Parse `Threshold`."""
    if text is None or text == "auto":
        return text  # type: ignore[return-value]
    try:
        return float(text)
    except ValueError:
        raise ConfigError(f"--threshold: {text!r} is neither a number nor auto") from None
