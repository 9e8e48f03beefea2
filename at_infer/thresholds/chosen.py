"""A threshold and how it was found, and what may be asked for."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from at_infer.errors import ConfigError
from at_infer.models.statistics import IncidentOptions, check_finite, check_ratio
from at_infer.thresholds.false_alarms import parse_rate
from at_infer.thresholds.quantiles import ValidationScores


@dataclass(frozen=True, slots=True, kw_only=True)
class ChosenThreshold:
    """A threshold and how it was found."""

    value: float
    how: str
    """In words."""
    ratio: float | None = None
    """Share of the validation scores above it; None: not known."""
    validation: ValidationScores | None = None
    """Scores of the validation rows that are formed as the scores in question, if they are known."""
    notes: tuple[str, ...] = ()
    """Notes for the user about the verdicts."""
    asked_rate: str | None = None
    """Rate of false incidents that was asked for."""
    incidents_per_day: float | None = None
    """False incidents per day that the validation part lets expect; None: not known."""
    incidents: IncidentOptions = field(default_factory=IncidentOptions)
    """Rules for incidents: those asked for, and those that the model has counted with."""
    leaking: bool = False
    """The threshold has seen the scores it is judged on, as in the published code."""

    def at_ratios(self, ratios: Sequence[float]) -> Iterator[tuple[float, float]]:
        """Ratio and threshold, if validation scores are known."""
        if self.validation is not None:
            for ratio in ratios:
                yield ratio, self.validation.at_ratio(ratio)

    def to_properties(self) -> dict[str, Any] | None:
        """Stored validation scores of a scores file."""
        if self.validation is None:
            return None
        known = self.validation
        return {"levels": known.levels, "quantiles": known.values, "ratio": self.ratio, "rows": known.rows}

    def to_dict(self) -> dict[str, Any]:
        """For an evaluation, JSON values only."""
        known = self.validation
        return {
            "name": "published-leaking" if self.leaking else "paper",
            "threshold": self.value,
            "how": self.how,
            "ratio": self.ratio,
            "leaking": self.leaking,
            "levels": None if known is None else known.levels,
            "values": None if known is None else known.values,
        }


def check_threshold(threshold: object, ratio: float | None, false_alarms: str | None = None) -> None:
    """Of options for scoring: a finite number, `auto`, or a ratio or a rate of false incidents instead."""
    if false_alarms is not None:
        if threshold is not None or ratio is not None:
            raise ConfigError("threshold: `false_alarms`, `ratio` and `threshold` cannot be combined; give one")
        parse_rate(false_alarms)
    if threshold is not None and threshold != "auto":
        if not isinstance(threshold, float | int):
            raise ConfigError(f"threshold: {threshold!r} is neither a finite number nor auto")
        check_finite("threshold", threshold)
    check_lone_ratio(ratio, threshold, "threshold")


def check_lone_ratio(ratio: float | None, other: object, name: str) -> None:
    """A ratio, and nothing else beside it."""
    if ratio is not None:
        if other is not None:
            raise ConfigError(f"threshold: `{name}` and `ratio` cannot be combined; give one")
        check_ratio(ratio)


def by_ratio(ratio: float, known: ValidationScores) -> str:
    """How a threshold was found, in words."""
    return f"r = {ratio:.4g} of the validation scores of {known.source}"
