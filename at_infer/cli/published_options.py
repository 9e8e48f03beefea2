"""Options for checkpoints of the published code, and the checkpoint that comes of them."""

from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from at_infer.cli.options import panel, split_names
from at_infer.config import DEFAULT_RATIO, Fill, ScoreConfig, ScoreMode
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


@dataclass(frozen=True, slots=True)
class PublishedOptions:
    """What was given of what a checkpoint of the published code lacks, and one of at-infer contains."""

    window: int | None = None
    heads: int | None = None
    scale_from: str | None = None
    columns: str | None = None
    exclude: str | None = None
    series_column: str | None = None
    ratio: float | None = None

    def refuse(self, checkpoint: Path) -> None:
        """Complain of any that is given for a checkpoint of at-infer."""
        for name in (entry.name for entry in fields(self) if getattr(self, entry.name) is not None):
            option = f"--{name.replace('_', '-')}"
            raise ConfigError(f"{option}: is for --published checkpoints; {checkpoint} contains it")

    def read(self, path: Path, score_mode: ScoreMode | None, fill: Fill = "error") -> "Checkpoint":
        """As `at-infer train` would have written it, from the file and the rows it was trained on."""
        from training.data import DataConfig
        from training.published import published_checkpoint

        if self.window is None:
            raise ConfigError(f"--window: {path} has no window length; pass --window 100 if it is the paper's")
        if self.scale_from is None:
            raise ConfigError(f"--scale-from: {path} has no scaler; pass the Parquet file it was trained on")
        trained_on = DataConfig(
            source=self.scale_from,
            columns=None if self.columns is None else split_names(self.columns),
            exclude=() if self.exclude is None else tuple(split_names(self.exclude)),
            series_column=self.series_column,
            fill=fill,
        )
        return published_checkpoint(
            path,
            trained_on,
            window=self.window,
            heads=self.heads,
            score=ScoreConfig(mode=score_mode or "published"),
            ratio=DEFAULT_RATIO if self.ratio is None else self.ratio,
        )
