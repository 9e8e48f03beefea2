"""Options for checkpoints of the published code, and the checkpoint that comes of them."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from at_infer.cli.options import panel, split_names
from at_infer.config import Fill, ScoreConfig, ScoreMode
from at_infer.errors import ConfigError

if TYPE_CHECKING:
    from training.checkpoint import Checkpoint

published_option = panel("Published checkpoints")

Published = Annotated[bool, published_option("--published", help="The checkpoint is one of thuml/Anomaly-Transformer.")]
Window = Annotated[int | None, published_option(help="Its window length, which the file does not contain.")]
Heads = Annotated[int | None, published_option(help="Its number of heads; checked against the file.")]
ScaleFrom = Annotated[str | None, published_option(help="Parquet it was trained on, for scaler and threshold.")]
Columns = Annotated[str | None, published_option(help="Its columns in that file, comma separated.")]
Exclude = Annotated[str | None, published_option(help="Columns of that file that are not features.")]
SeriesColumn = Annotated[str | None, published_option(help="Column of that file that identifies the series.")]


def refuse_unless_published(checkpoint: Path, **given: object) -> None:
    """Options by name, of which none may be given for a checkpoint of at-infer."""
    for name, value in given.items():
        if value is not None:
            option = f"--{name.replace('_', '-')}"
            raise ConfigError(f"{option}: is for --published checkpoints; {checkpoint} contains it")


def read_published(
    path: Path,
    *,
    window: int | None,
    heads: int | None,
    scale_from: str | None,
    columns: str | None,
    exclude: str | None,
    series_column: str | None,
    ratio: float,
    score_mode: ScoreMode | None,
    fill: Fill = "error",
) -> "Checkpoint":
    """As `at-infer train` would have written it, from the file and the rows it was trained on."""
    from training.published import published_checkpoint

    if window is None:
        raise ConfigError(f"--window: {path} has no window length; pass --window 100 if it is the paper's")
    if scale_from is None:
        raise ConfigError(f"--scale-from: {path} has no scaler; pass the Parquet file it was trained on")
    return published_checkpoint(
        path,
        scale_from,
        window=window,
        heads=heads,
        columns=None if columns is None else split_names(columns),
        exclude=() if exclude is None else tuple(split_names(exclude)),
        series_column=series_column,
        score=ScoreConfig(mode=score_mode or "published"),
        ratio=ratio,
        fill=fill,
    )
