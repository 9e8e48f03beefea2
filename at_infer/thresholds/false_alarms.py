"""From a rate of false incidents to a threshold, by how many incidents the validation part shows at each level."""

import math
import re
from dataclasses import dataclass

import numpy as np

from at_infer.config import DEFAULT_RATE, DEFAULT_RATE_WITHOUT_DATES
from at_infer.errors import ConfigError
from at_infer.models.metadata import Metadata
from at_infer.models.statistics import IncidentCurve

DAYS = {"hour": 1 / 24, "day": 1.0, "week": 7.0, "month": 30.4375, "year": 365.25}
FORM = re.compile(r"\s*(\d+(?:\.\d+)?)\s*/\s*(?:(\d+)\s*)?([a-z]+?)s?\s*")
DAY_S = 86_400.0
MOST_FITTED, LEAST_FITTED = 20, 3
"""Numbers of incidents that the tail is fitted to, and how many different ones it takes."""
FARTHEST = 3
"""By default at least one false incident in so many times the validation rows: of rarer ones these rows say little."""


@dataclass(frozen=True, slots=True)
class Rate:
    """A rate of false incidents, per time or per rows."""

    text: str
    count: float
    days: float | None
    rows: float | None

    def per_row(self, rows_per_day: float | None) -> float:
        """Incidents per row."""
        if self.rows is not None:
            return self.count / self.rows
        assert self.days is not None
        if rows_per_day is None:
            raise ConfigError(
                f"false_alarms: {self.text} needs the time between rows, which the model does not know; give a rate "
                f"per rows, such as '1/10000 rows', or use at-infer threshold --rows-per-day"
            )
        return self.count / self.days / rows_per_day


def parse_rate(text: str) -> Rate:
    """`1/day`, `2/week`, `0.5/hour`, `1/10000 rows`."""
    match = FORM.fullmatch(text.lower())
    count = float(match[1]) if match else 0.0
    if match is None or match[3] not in (*DAYS, "row") or not count > 0 or match[2] == "0":
        raise ConfigError(f"false_alarms: {text!r} is not a rate; write 1/day, 2/week, 1/month or 1/10000 rows")
    units = float(match[2] or 1)
    of_rows = match[3] == "row"
    return Rate(text.strip(), count, None if of_rows else units * DAYS[match[3]], units if of_rows else None)


def usual_rate(rows_per_day: float | None) -> str:
    """The rate of false incidents to aim at unless one is requested: per day if the time between rows is known."""
    return DEFAULT_RATE_WITHOUT_DATES if rows_per_day is None else DEFAULT_RATE


@dataclass(frozen=True, slots=True)
class RateThreshold:
    """A threshold for a rate."""

    value: float
    rate: str
    note: str
    """Its basis, in words."""

    @property
    def how(self) -> str:
        """How it was found, in words."""
        return f"{self.rate} false incidents; {self.note}"


class IncidentRates:
    """How often incidents are false at each threshold."""

    def __init__(self, curve: IncidentCurve) -> None:
        self.curve = curve
        self.levels = np.asarray(curve.levels, np.float64)
        # With a low threshold all incidents become one: what counts is the most that any higher one shows.
        self.counts = np.maximum.accumulate(np.asarray(curve.counts, np.float64)[::-1])[::-1]
        self.tail = self._fit()

    def expected(self, threshold: float) -> float:
        """Incidents per row of normal data; beyond the highest score of the validation part by its tail."""
        if threshold < self.levels[-1]:
            return float(np.interp(threshold, self.levels, self.counts)) / self.curve.rows
        if self.tail is None or threshold <= 0:
            return 0.0
        slope, offset = self.tail
        return min(1.0, math.exp(offset + slope * math.log(threshold))) / self.curve.rows

    def default_rate(self, rows_per_day: float | None) -> str:
        """The usual one, or the lowest that so few rows tell anything about."""
        rate, farthest = usual_rate(rows_per_day), self.curve.rows * (1 if self.tail is None else FARTHEST)
        return rate if parse_rate(rate).per_row(rows_per_day) * farthest >= 1 else f"1/{farthest} rows"

    def threshold_for(self, asked: str | None, rows_per_day: float | None) -> RateThreshold:
        """The lowest one for the rate that was asked for, or for the default."""
        return self.threshold(parse_rate(asked or self.default_rate(rows_per_day)), rows_per_day)

    def threshold(self, rate: Rate, rows_per_day: float | None) -> RateThreshold:
        """The lowest one that yields at most this rate, there and above."""
        allowed = rate.per_row(rows_per_day) * self.curve.rows
        covered = f"{self.curve.rows} validation rows"
        if rows_per_day is not None:
            covered += f" ({self.curve.rows / rows_per_day:.2g} days)"
        if allowed >= 1:
            at = int(np.argmax(self.counts <= allowed))
            incidents = f"{self.counts[at]:g} incident{'s' if self.counts[at] != 1 else ''}"
            return RateThreshold(float(self.levels[at]), rate.text, f"{incidents} in {covered}")
        if self.tail is None:
            raise ConfigError(
                f"false_alarms: {covered} have too few incidents to estimate a rate of {rate.text}; ask for a higher "
                f"rate, or validate on more rows"
            )
        slope, offset = self.tail
        value = max(float(self.levels[-1]), math.exp((math.log(allowed) - offset) / slope))
        return RateThreshold(value, rate.text, f"extrapolated: {covered} are less than it takes to see {rate.text}")

    def _fit(self) -> tuple[float, float] | None:
        """Slope and offset of log(incidents) against log(threshold) near the top; None if too few are known."""
        near = (self.counts >= 1) & (self.counts <= MOST_FITTED) & (self.levels > 0)
        if len(np.unique(self.counts[near])) < LEAST_FITTED:
            return None
        slope, offset = np.polyfit(np.log(self.levels[near]), np.log(self.counts[near]), 1)
        return (float(slope), float(offset)) if slope < 0 else None


def rates_of(curve: IncidentCurve | None, source: str) -> IncidentRates:
    """By incident counts of a validation part, if there are any."""
    if curve is None:
        raise ConfigError(
            f"false_alarms: no incidents were counted in {source} for rows scored in this way; train again, or give "
            f"scores of normal rows to at-infer threshold --method incidents --scores ..."
        )
    return IncidentRates(curve)


def rows_per_day_of(metadata: Metadata) -> float | None:
    """By the usual step between rows that training has learnt, if times are dates."""
    spacing = metadata.spacing
    return None if spacing is None or spacing.clock != "date" else DAY_S / spacing.step
