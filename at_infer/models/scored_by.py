"""Metadata of a scores file: model and options."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Self

from at_infer.choices import BadTime
from at_infer.config import Align, Config, ScoreConfig
from at_infer.errors import AtInferError, ConfigError, DataError
from at_infer.models.agreement import check_quantiles
from at_infer.models.metadata import PREFIX
from at_infer.models.spacing import Grid, Spacing
from at_infer.models.statistics import IncidentOptions, check_share
from at_infer.untrusted import load_json, typed, typed_fields


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptScores(Config):
    """Quantiles of validation scores that are formed as the scores of the file."""

    levels: list[float]
    quantiles: list[float]
    ratio: float | None
    """Share of them above the threshold."""
    rows: int

    def __post_init__(self) -> None:
        check_quantiles(self.levels, [self.quantiles])
        self._at_least("rows", 0)
        if self.ratio is not None:
            check_share(self.ratio)


@dataclass(frozen=True, slots=True, kw_only=True)
class FalseAlarms(Config):
    """False incidents: the rate that was asked for, and what the validation part lets expect."""

    asked: str | None
    expected_per_day: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoredBy:
    """None where the file does not say."""

    version: str | None
    engine: str | None
    engine_file: str | None
    checkpoint_sha256: str | None
    precision: str | None
    columns: list[str] | None
    score: ScoreConfig | None
    threshold: float | None
    validation: KeptScores | None
    alignment: str | None
    layout: dict[str, Any] | None
    delay: int | None
    look_ahead: int | None
    """Rows behind a row that its score depends on."""
    false_alarms: FalseAlarms | None
    options: dict[str, Any] | None
    incident_options: IncidentOptions | None
    """Rules for incidents that differ from those that fit the score."""
    spacing: Spacing | None
    """How the rows lie in time, with the longest step that was no gap."""
    time_column: str | None
    series_column: str | None
    on_bad_time: BadTime | None
    grid: Grid | None
    """That the rows were put on before they were scored."""

    @classmethod
    def of(cls, properties: Mapping[str, str], source: str) -> Self:
        """From the key-value metadata of a file; unknown entries are ignored, damaged ones are refused."""
        values: dict[str, Any] = {}
        for entry in fields(cls):
            name = entry.name
            try:
                values[name] = load_json(properties.get(PREFIX + name, "null"))
                typed_fields(cls, dict.fromkeys([one.name for one in fields(cls)]) | {name: values[name]})
            except (ValueError, AtInferError) as error:
                raise DataError(f"{source}: its metadata are damaged ({PREFIX}{name}: {error}); score again") from None
        known = cls(**typed_fields(cls, values))
        try:
            known.way()
        except ConfigError as error:
            raise DataError(f"{source}: its metadata are damaged ({PREFIX}layout: {error}); score again") from None
        return known

    def way(self) -> tuple[Align, int]:
        """Alignment and delay of the rows; whole windows, if the file does not say."""
        align: Align = "window" if self.layout is None else typed(Align, self.layout.get("align"), "align")
        return align, self.delay or 0
