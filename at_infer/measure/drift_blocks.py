"""Blocks of rows of one series against training and validation statistics: which have left them, and since when."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from at_infer.models.metadata import Metadata
from at_infer.models.spacing import Times
from at_infer.models.view_sums import LARGEST
from at_infer.models.views import ACTIVITY, FLOOR, NEXT, LinearPrediction, MovingMeans
from at_infer.scoring.missing import Filler
from at_infer.thresholds.chosen import ChosenThreshold
from at_infer.thresholds.verdict import exceeds

Floats = NDArray[np.float32]
Summary = NDArray[np.float64]
Numbers = NDArray[Any]
Kind = Literal["level", "spread", "activity", "missing", "error", "flagged", "score"]

SUSTAINED_BLOCKS = 2  # at the end of a series; what has gone again was an incident
MOST_MISSING = 0.5
CORRELATED_ROWS = 100  # neighbouring scores rise together: so many rows count as one
LEAST_FLAGGED = 1e-4  # a threshold above all validation scores may be exceeded some day
HIGH_LEVEL = 0.95
CENTRAL_STDS = 2.563  # from the 10 % to the 90 % quantile of a normal distribution


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A deviation from the validation statistics that lasts until the end of its series."""

    kind: Kind
    feature: str | None
    """None: it is about the score."""
    series: str
    since_row: int
    """Of the whole input: the first row of the first block."""
    since_time: str | float | int | None
    blocks: int
    """How many blocks in a row, up to the end."""
    value: float
    """Median over these blocks."""
    normal: float
    """The same in the training or validation part."""
    size: float
    """Level: training standard deviations. Missing: share of the values. Otherwise a factor."""
    constant: bool = False
    """The feature was constant in the training part."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Reference:
    """Training and validation statistics of a model."""

    columns: list[str]
    mean: Floats
    scale: Floats
    """Standard deviation of the training part; a small number for a constant feature."""
    constant: NDArray[np.bool_]
    next_error: Floats
    """Error of the prediction below on normal rows."""
    next: Floats | None
    """Linear prediction of a row from earlier ones; None, like the next two, in models of earlier versions."""
    activity: Floats
    """Mean logarithm of its squared error, averaged over 50 rows."""
    activity_spread: Floats
    error: Floats | None
    """Mean squared error of the reconstruction; None: not to be compared."""
    threshold: float
    flagged: float | None
    """Share of the validation scores above it."""
    rows: int
    """Of the validation part."""
    median: float
    high: float
    """Quantiles of the validation scores."""

    @classmethod
    def of(cls, metadata: Metadata, chosen: ChosenThreshold, error: Floats | None) -> "Reference":
        """From the metadata of a model."""
        mean, scale = (np.asarray(values, np.float32) for values in (metadata.scaler.mean, metadata.scaler.scale))
        views = None if metadata.normal is None else metadata.normal.views
        constant = np.zeros(len(mean), np.bool_)
        activity, spread = np.zeros_like(mean), np.ones_like(mean)
        if views is not None:
            activity = np.asarray(views.whole.centre["activity next"], np.float32)
            spread = np.asarray(views.whole.spread["activity next"], np.float32)
            # The scaler leaves a constant feature in its own unit.
            constant = (scale == 1) & (activity <= np.log(FLOOR) + np.float32(0.01))
        known = chosen.validation
        flagged = chosen.ratio if known is None or chosen.ratio is not None else known.share_above(chosen.value)
        median, high = (math.nan, math.nan) if known is None else known.at_levels([0.5, HIGH_LEVEL])
        return cls(
            columns=metadata.columns,
            mean=mean,
            scale=np.where(constant, np.float32(1e-3) * np.maximum(np.abs(mean), np.float32(1e-3)), scale),
            constant=constant,
            next_error=np.asarray([] if views is None else views.whole.spread["next"], np.float32),
            next=None if views is None else np.asarray(views.next, np.float32),
            activity=activity,
            activity_spread=spread,
            error=None if error is None else np.maximum(error, FLOOR),
            threshold=chosen.value,
            flagged=None if flagged is None else max(flagged, LEAST_FLAGGED),
            rows=max(known.rows if known is not None else 0, 1),
            median=median,
            high=high,
        )


@dataclass(slots=True)
class Blocks:
    """Cuts a stream of rows into blocks and keeps a summary of each."""

    block_rows: int
    summarise: Callable[[Floats], Summary]
    found: list[Summary] = field(default_factory=list)
    held: list[Floats] = field(default_factory=list)
    count: int = 0
    """Rows that are held."""

    def add(self, rows: Floats) -> None:
        """The next rows (n,C)."""
        while len(rows):
            part = rows[: self.block_rows - self.count]
            self.held.append(part.copy())
            self.count += len(part)
            rows = rows[len(part) :]
            if self.count == self.block_rows:
                self._close()

    def end(self) -> list[Summary]:
        """The summaries of all blocks; the remaining rows are one if there are at least half a block of them."""
        if self.count and 2 * self.count >= self.block_rows:
            self._close()
        return self.found

    def _close(self) -> None:
        self.found.append(self.summarise(np.concatenate(self.held)))
        self.held, self.count = [], 0


class SeriesDrift:
    """One series: rows and their scores in, findings out."""

    def __init__(self, known: Reference, block_rows: int, name: str, first_row: int) -> None:
        self.known, self.block_rows, self.name, self.first_row = known, block_rows, name, first_row
        self.rows, self.scored_rows = 0, 0
        self.times: list[float] = []
        """Of the first row of each block."""
        self.inputs, self.activities = Blocks(block_rows, _inputs), Blocks(block_rows, _medians)
        self.scores = Blocks(block_rows, self._scores)
        self.filler = Filler("forward", known.mean.tolist())
        self.prediction = None if known.next is None else LinearPrediction(NEXT, known.next, known.next_error)
        self.means = MovingMeans([(ACTIVITY // 2, ACTIVITY - 1 - ACTIVITY // 2)])

    def push(self, values: Floats, times: Times | None) -> None:
        """The next rows (n,F), raw; values that are not finite are missing."""
        values = np.where(np.isfinite(values), values, np.float32(np.nan))
        if times is not None:
            self.times += times[(-self.rows) % self.block_rows :: self.block_rows].tolist()
        self.rows += len(values)
        self.inputs.add(values)
        self.filler.apply(values)
        if self.prediction is not None and len(values):
            with np.errstate(over="ignore", invalid="ignore"):
                errors = self.prediction.errors(((values - self.known.mean) / self.known.scale).T)
                self._activity(np.minimum(np.square(errors), LARGEST), end=False)

    def score(self, rows: Floats) -> None:
        """The next scores, and behind them errors of the features, if they are known (n,C)."""
        self.scored_rows += len(rows)
        self.scores.add(rows)

    def end(self) -> int:
        """No more rows; how many blocks there were."""
        if self.prediction is not None and self.rows:
            self._activity(np.empty((len(self.known.mean), 0), np.float32), end=True)
        return len(self.inputs.end())

    def findings(self, limit: float) -> Iterator[Finding]:
        """Deviations of features and score that last until the last block; all scores must be known."""
        blocks = len(self.inputs.end())
        if blocks < SUSTAINED_BLOCKS:
            return
        known = self.known
        low, median, high, missing = np.stack(self.inputs.found, axis=1)  # (blocks,F) each
        with np.errstate(invalid="ignore", over="ignore"):
            level = (median - known.mean) / known.scale
            spread = (high - low) / CENTRAL_STDS
            factor = spread / known.scale
        gone = missing > MOST_MISSING
        yield from self._of_features("missing", gone, missing, np.zeros_like(known.mean), missing)
        yield from self._of_features("level", ~gone & (np.abs(level) > limit), median, known.mean, level)
        yield from self._of_features("spread", ~gone & (factor > limit), spread, known.scale, factor)
        if activities := self.activities.end():
            change = np.stack(activities)[:, 0] - known.activity
            # Both: a steady feature leaves its narrow range soon, a bursty one has a wide one.
            odd = (np.abs(change) > limit * known.activity_spread) & (np.abs(change) / 2 > np.log(limit))
            unit = known.scale * np.exp(known.activity / 2)
            size = np.exp(np.clip(change / 2, -80, 80))
            yield from self._of_features("activity", ~gone & odd & ~known.constant, unit * size, unit, size)
        scores = np.stack(self.scores.end())[:, 0]  # (blocks,3+F)
        if known.error is not None:
            size = np.sqrt(scores[:, 3:] / known.error)
            normal = np.sqrt(known.error)
            yield from self._of_features("error", size > limit, size * normal, normal, size)
        yield from self._of_score(scores[:, :3], limit)

    def _of_score(self, scores: Numbers, limit: float) -> Iterator[Finding]:
        median, flagged, rows = scores.T
        if (expected := self.known.flagged) is not None:
            pairs = rows * self.known.rows / (rows + self.known.rows)  # a short validation part is uncertain, too
            independent = np.maximum(pairs / CORRELATED_ROWS, 1)
            most = limit * (expected + np.sqrt(expected * (1 - expected) / independent))
            found = self._finding("flagged", None, flagged > most, flagged, expected, flagged / expected)
            yield from found
        normal = self.known.median
        odd = (median > self.known.high) & (median > limit / 2 * normal)  # a steady score has narrow quantiles
        yield from self._finding("score", None, odd, median, normal, median / (normal or 1.0))

    def _of_features(
        self, kind: Kind, odd: Numbers, value: Numbers, normal: Numbers, size: Numbers
    ) -> Iterator[Finding]:
        """Statistics of each block and feature; `normal` is that of each feature."""
        for j in np.flatnonzero(odd[-SUSTAINED_BLOCKS:].all(axis=0)).tolist():
            yield from self._finding(kind, j, odd[:, j], value[:, j], float(normal[j]), size[:, j])

    def _finding(
        self, kind: Kind, feature: int | None, odd: Numbers, value: Numbers, normal: float, size: Numbers
    ) -> Iterator[Finding]:
        if not odd[-SUSTAINED_BLOCKS:].all():
            return
        first = len(odd) - int((~odd[::-1]).argmax()) if not odd.all() else 0
        yield Finding(
            kind=kind,
            feature=None if feature is None else self.known.columns[feature],
            series=self.name,
            since_row=self.first_row + first * self.block_rows,
            since_time=self.times[first] if self.times else None,
            blocks=len(odd) - first,
            value=float(np.median(value[first:])),
            normal=normal,
            size=float(np.median(size[first:])),
            constant=feature is not None and bool(self.known.constant[feature]),
        )

    def _activity(self, squares: Floats, *, end: bool) -> None:
        (means,) = self.means.add(squares, end=end)
        self.activities.add(np.log(means + FLOOR).T)

    def _scores(self, rows: Floats) -> Summary:
        """(1,3+F): median, share above the threshold, rows with a score, and median errors of the features."""
        known = rows[~np.isnan(rows[:, 0])]
        if 2 * len(known) < len(rows):
            return np.full((1, 2 + rows.shape[1]), np.nan)
        flagged = float(exceeds(known[:, 0], self.known.threshold).mean())
        medians = np.median(known, axis=0).astype(np.float64)
        return np.array([[medians[0], flagged, len(known), *medians[1:]]])


def _inputs(rows: Floats) -> Summary:
    """(4,F): three quantiles of the known values, and the fraction of missing values."""
    missing = np.isnan(rows).mean(axis=0)
    if not missing.any():
        quantiles = np.quantile(rows, (0.1, 0.5, 0.9), axis=0)
    else:
        known = [column[~np.isnan(column)] for column in rows.T]
        nothing = np.full(3, np.nan)
        quantiles = np.stack([np.quantile(c, (0.1, 0.5, 0.9)) if len(c) else nothing for c in known], axis=1)
    return np.concatenate([quantiles, missing[None]])


def _medians(rows: Floats) -> Summary:
    return np.median(rows, axis=0)[None].astype(np.float64)
