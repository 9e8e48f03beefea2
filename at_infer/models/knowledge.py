"""Data that a checkpoint and the models exported from it share."""

from dataclasses import dataclass, fields
from typing import Any

from at_infer.config import Align, DiscrepancyConfig, Fill, ModelConfig, ScoreConfig
from at_infer.models.season import Season
from at_infer.models.spacing import Grid, Spacing
from at_infer.models.statistics import Normal, Scaler, ValidationRecord, find_validation


@dataclass(frozen=True, slots=True, kw_only=True)
class Knowledge:
    """Network, columns, score and validation statistics."""

    model: ModelConfig
    columns: list[str]
    """Names of the features, in order."""
    time_column: str | None
    series_column: str | None
    """Time and series column of the training data; scoring expects them too."""
    scaler: Scaler
    """Inside an exported graph, which takes raw values; needed to read `reconstruction`, which is scaled."""
    fill: Fill
    """What to do with missing values, in training and again when scoring."""
    discrepancy: DiscrepancyConfig
    """How associations are compared."""
    score: ScoreConfig
    quantile_levels: list[float]
    validation: list[ValidationRecord]
    """Threshold, and quantiles of the validation scores at `quantile_levels`, for each way to score a row."""
    normal: Normal | None
    """Validation statistics, for modes that need them; None if not measured."""
    season: Season | None = None
    """To subtract from raw rows before they are scaled, by their times; None: the rows go in as they are."""
    spacing: Spacing | None = None
    """Of rows in time, which tells gaps; None if the training data had no time that can be subtracted."""
    grid: Grid | None = None
    """Times that rows are put on before anything else; None: they stay as they are."""

    def validation_of(self, align: Align = "window", delay: int = 0) -> ValidationRecord:
        """The record of rows that are scored like this; of whole windows, if there is none."""
        return find_validation(self.validation, align, delay)

    def to_dict(self) -> dict[str, Any]:
        """JSON values only, but for the weights of a checkpoint."""
        values = {
            entry.name: value.to_dict() if hasattr(value := getattr(self, entry.name), "to_dict") else value
            for entry in fields(self)
        }
        return values | {"validation": [record.to_dict() for record in self.validation]}
