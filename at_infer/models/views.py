"""Views of a series: deviations of each feature at each row. Streams of rows in, signed views out. Pure numpy.

Rows are scaled, in order, of one series. What is a function of a window (reconstruction, shape) comes from the engine;
here is what needs more rows than a window has: linear predictions, activity, and the recent level.

Rows are the last axis of all arrays, so that each step is a pass over contiguous memory; axes in front of the features
are series that advance together. Every number is formed by the same operations in the same order, however many rows
come at once: sums by numpy over a whole axis are avoided, since their order depends on the shape.
"""

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from at_infer.config import Level
from at_infer.models.row_sums import window_sums

Floats = NDArray[np.float32]


class Remembering:
    """State of a stream for a restart: numbers and arrays by name; None is omitted."""

    kept: tuple[str, ...]

    def remember(self) -> dict[str, Any]:
        """As they are now."""
        return {name: value for name in self.kept if (value := getattr(self, name)) is not None}

    def recall(self, kept: dict[str, Any]) -> None:
        """As they were."""
        for name in self.kept:
            setattr(self, name, kept.get(name))


View = Literal["shape", "next", "ahead", "activity next", "activity ahead", "level"]

VIEWS: tuple[View, ...] = get_args(View)
"""The level is last, so that it can be left out; before it stand both activities, before them both predictions."""
AT_ONCE = len(VIEWS) - 2
"""Views that are known with the row itself: all but activity."""
NEXT_AT, ACTIVITY_AT = VIEWS.index("next"), VIEWS.index("activity next")
NEXT, AHEAD = range(1, 21), range(5, 25)
"""Lags of the rows that the two linear predictions see."""
ACTIVITY = 50
"""Rows over which activity is measured."""
SHAPE_ROWS = 49
"""Rows before a live row whose mean residual its shape is without."""
FLOOR = np.float32(1e-4)
"""In squared units of the scaler: a hundredth of a standard deviation."""
LEVEL_STEP, LEVEL_ROWS, LEVEL_LAG, LEVEL_LEAST = 20, 50, 25, 5
"""The recent level is the median of every 20th row, 50 of them, at least 25 rows before the block of 20."""
LEVEL_YOUNG = -(-LEVEL_LAG // LEVEL_STEP)
"""Rows behind the last one that is old enough, of those that are kept."""
FEW_ROWS = 16
"""Up to this many rows, one operation on all lags is faster than one for each."""


def lookback(level: Level) -> int:
    """How many rows before a row its views may depend on."""
    reach = max(AHEAD) + ACTIVITY // 2  # and SHAPE_ROWS, which are as many
    return max(reach, LEVEL_STEP * (LEVEL_ROWS + 1) + LEVEL_LAG) if level == "recent" else reach


def append(past: Floats, rows: Floats) -> tuple[Floats, Floats]:
    """Past and new rows together (...,k+n), and the last k of them."""
    known = np.concatenate([past, rows], axis=-1)
    return known, known[..., rows.shape[-1] :].copy()


Prediction = tuple[Floats, Floats]
"""Coefficients (F,p+1) of a linear prediction, and its error (F,) on normal rows."""


def prediction_errors(known: Floats, rows: int, lags: range, coefficients: Floats) -> Floats:
    """The last `rows` of those `known`, contiguous (...,F,k), minus their prediction, signed; the intercept is last."""
    first = known.shape[-1] - rows
    errors: Floats = known[..., first:] - coefficients[:, -1:]
    if 0 < rows <= FEW_ROWS:
        terms = np.empty((*errors.shape, len(lags) + 1), np.float32)
        terms[..., 0] = errors
        step = known.itemsize
        seen: Floats = np.ndarray(
            (*errors.shape, len(lags)), np.float32, known, (first - lags[0]) * step, (*known.strides, -step)
        )
        np.multiply(seen, coefficients[:, None, :-1], out=terms[..., 1:])
        return np.asarray(np.subtract.reduce(terms, axis=-1))  # one by one, as below
    term = np.empty(errors.shape, np.float32)
    for k, lag in enumerate(lags):
        np.multiply(known[..., first - lag : first - lag + rows], coefficients[:, k, None], out=term)
        np.subtract(errors, term, out=errors)
    return errors


class LinearPrediction(Remembering):
    """Per feature, from its earlier rows; a row with too few earlier rows gets the typical error."""

    kept = ("past", "seen")

    def __init__(self, lags: range, coefficients: Floats, usual: Floats) -> None:
        """`usual` is the error (F,) of a normal row."""
        self.lags, self.coefficients, self.usual, self.seen = lags, coefficients, usual, 0
        self.past = np.zeros((len(usual), max(lags)), np.float32)

    def errors(self, x: Floats) -> Floats:
        """x (F,n) minus its prediction, signed."""
        known, self.past = append(self.past, x)
        errors = prediction_errors(known, x.shape[1], self.lags, self.coefficients)
        if self.seen < max(self.lags):
            errors[:, : max(self.lags) - self.seen] = self.usual[:, None]
        self.seen += x.shape[1]
        return errors


class RecentLevel(Remembering):
    """Running median of residuals over about a thousand rows; a step becomes the new level late and at once."""

    kept = ("number", "first_row", "rows", "early", "median")

    def __init__(self, number: int, features: int) -> None:
        self.number = number
        """Of the next row in its series: every 20th of the whole series counts, wherever a stream begins."""
        self.first_row = _next_step(number)
        """The first one that counts."""
        self.rows = np.zeros((features, LEVEL_ROWS + LEVEL_YOUNG), np.float32)
        """The last rows that count, the newest last."""
        self.early: Floats | None = np.empty((features, 0), np.float32)
        """All rows so far, while too few are old enough."""
        self.median = np.zeros(features, np.float32)
        """Of the block that the last row is in."""

    def of(self, residuals: Floats) -> Floats:
        """The level at each of the next rows (F,n)."""
        if residuals.shape[1] == 1 and self.early is None:
            return self.step(residuals[:, 0])[:, None]
        level = np.empty(residuals.shape, np.float32)
        young = 0 if self.early is None else self._of_early(residuals, level)
        first, end = self.number + young, self.number + residuals.shape[1]
        following = _next_step(self.number)
        kept, self.rows = append(self.rows, residuals[:, following - self.number :: LEVEL_STEP])
        self.number = end
        if first < end:
            medians = self._medians(kept, range(_next_step(first), end, LEVEL_STEP), following)
            medians = np.column_stack([self.median, medians])  # in front that of the block which is under way
            begun = LEVEL_STEP - (_next_step(first) - first)
            level[:, young:] = np.repeat(medians, LEVEL_STEP, axis=1)[:, begun : begun + end - first]
            self.median = medians[:, -1].copy()
        return level

    def step(self, residual: Floats) -> Floats:
        """The level (F,) at the next row (F,), when no row is early: `of` without the arrays for many."""
        if self.number % LEVEL_STEP == 0:
            kept, self.rows = append(self.rows, residual[:, None])
            self.median = self._medians(kept, range(self.number, self.number + 1), self.number)[:, 0]
        self.number += 1
        return self.median

    def _of_early(self, residuals: Floats, level: Floats) -> int:
        """Fill in rows that have too few before them, by the median of all so far; how many there are."""
        assert self.early is not None
        settled = self.first_row + _next_step(LEVEL_STEP * (LEVEL_LEAST - 1) + LEVEL_LAG)
        young: int = min(residuals.shape[1], settled - self.number)
        known = self.early.shape[1]
        self.early = np.concatenate([self.early, residuals[:, :young]], axis=1)
        for row in range(young):
            level[:, row] = median(self.early[:, : known + row + 1])
        if self.number + young == settled:
            self.early = None
        return young

    def _medians(self, kept: Floats, blocks: range, following: int) -> Floats:
        """(F,b) of some blocks, by their first rows; `following` is the number of the first new row of those kept."""
        found = np.empty((len(kept), len(blocks)), np.float32)
        ends = [self.rows.shape[1] + (block - LEVEL_LAG - following) // LEVEL_STEP + 1 for block in blocks]
        old = [min(LEVEL_ROWS, (block - LEVEL_LAG - self.first_row) // LEVEL_STEP + 1) for block in blocks]
        few = 1 if len(blocks) == 1 else sum(count < LEVEL_ROWS for count in old)  # one needs no view of many
        for k in range(few):
            found[:, k] = median(kept[:, ends[k] - old[k] : ends[k]])
        if few < len(blocks):
            windows = sliding_window_view(kept, LEVEL_ROWS, axis=1)
            found[:, few:] = median(windows[:, ends[few] - LEVEL_ROWS : ends[-1] - LEVEL_ROWS + 1])
        return found


def median(values: Floats) -> Floats:
    """Over the last axis; sorting short rows is faster than numpy's own median."""
    half, odd = divmod(values.shape[-1], 2)
    ordered = np.sort(values, axis=-1)
    middle: Floats = ordered[..., half] if odd else (ordered[..., half - 1] + ordered[..., half]) / np.float32(2)
    return middle


def _next_step(number: int) -> int:
    """The next row that counts for the level."""
    return -(-number // LEVEL_STEP) * LEVEL_STEP


class Sums(NamedTuple):
    """Of some rows around each row (...,m)."""

    total: Floats
    rows: Any
    """How many there are: a number, or one for each row (m,) where some do not exist."""


class MovingMeans(Remembering):
    """Means over rows t - before .. t + after that exist, for several spans at once; rows in, rows out when known."""

    kept = ("context", "seen")

    def __init__(self, spans: Sequence[tuple[int, int]]) -> None:
        self.spans = spans
        self.before, self.after = (max(span[side] for span in spans) for side in (0, 1))
        self.context: Floats | None = None
        """The last rows, zeros before the first."""
        self.seen = 0

    def add(self, rows: Floats, *, end: bool = False) -> list[Floats]:
        """The means (...,m) of each span, for rows whose neighbours are all known, or do not come: this is the end."""
        return [np.divide(*sums) for sums in self.add_up(rows, end=end)]

    def add_up(self, rows: Floats, *, end: bool = False) -> list[Sums]:
        """The same, not yet divided."""
        if self.context is None:
            self.context = np.zeros((*rows.shape[:-1], self.before + self.after), np.float32)
        first, total = self.seen - self.after, self.seen + rows.shape[-1]
        if end:
            rows = np.concatenate([rows, np.zeros((*rows.shape[:-1], self.after), np.float32)], axis=-1)
        known, self.context = append(self.context, rows)
        self.seen = total
        count = rows.shape[-1]
        sums = window_sums(known, [(self.before - before, before + 1 + after) for before, after in self.spans], count)
        skipped = min(count, max(0, -first))
        found = []
        for (before, after), of_span in zip(self.spans, sums, strict=True):
            width: Any = np.float32(before + 1 + after)
            if end or first < before:
                numbers = np.arange(first + skipped, first + count)
                exist = np.minimum(numbers + after + 1, total) - np.maximum(numbers - before, 0)
                width = np.maximum(exist, 1).astype(np.float32)
            found.append(Sums(of_span[..., skipped:], width))
        return found


class SeriesViews:
    """Signed views of one series, row by row."""

    def __init__(
        self,
        predictions: Sequence[Prediction],
        *,
        causal: bool,
        level: Level,
        number: int,
        past_shape: bool = False,
    ) -> None:
        """`predictions` are of the next row and ahead; `number` is that of the first row in its series.

        With `past_shape`, shapes are not given but are residuals without the mean of those before them.
        """
        self.predictions = list(zip((NEXT, AHEAD), predictions, strict=True))
        features, half = len(predictions[0][0]), ACTIVITY // 2
        self.past = np.zeros((features, max(AHEAD)), np.float32)
        self.level = RecentLevel(number, features) if level == "recent" else None
        self.means = MovingMeans([(half, 0 if causal else ACTIVITY - 1 - half)])
        self.residuals = MovingMeans([(SHAPE_ROWS, 0)]) if past_shape else None
        self.waiting = np.zeros((features, AT_ONCE, self.means.after), np.float32)
        """Views that are known while activity is not."""

    def add(self, x: Floats, residual: Floats, shape: Floats | None, *, end: bool = False) -> Floats:
        """Scaled rows, their residuals and shapes, each (F,n) -> views (F,V,m) of rows that are known now."""
        rows, seen = x.shape[-1], self.means.seen
        known, self.past = append(self.past, x)
        waited = self.waiting.shape[-1]
        kept = np.empty((*x.shape[:-1], AT_ONCE, waited + rows), np.float32)
        kept[..., :waited], new = self.waiting, kept[..., waited:]
        if self.residuals is not None:
            np.subtract(residual, self.residuals.add(residual)[0], out=new[..., VIEWS.index("shape"), :])
        else:
            new[..., VIEWS.index("shape"), :] = shape
        for k, (lags, (coefficients, usual)) in enumerate(self.predictions, start=NEXT_AT):
            new[..., k, :] = prediction_errors(known, rows, lags, coefficients)
            if seen < max(lags):
                new[..., k, : max(lags) - seen] = usual[:, None]
        level: Any = 0 if self.level is None else self.level.of(residual)
        np.subtract(residual, level, out=new[..., -1, :])
        (activity,) = self.means.add(np.square(new[..., NEXT_AT:ACTIVITY_AT, :]), end=end)
        end_of_ready = waited + rows if end else rows
        if self.means.after:
            self.waiting = kept[..., rows:].copy()
        views = np.empty((*x.shape[:-1], len(VIEWS), activity.shape[-1]), np.float32)
        ready = kept[..., end_of_ready - activity.shape[-1] : end_of_ready]
        views[..., :ACTIVITY_AT, :] = ready[..., :ACTIVITY_AT, :]
        activity += FLOOR
        np.log(activity, out=views[..., ACTIVITY_AT:-1, :])
        views[..., -1, :] = ready[..., -1, :]
        return views

    def remember(self) -> dict[str, Any]:
        """Numbers and arrays by name; nothing waits in a causal stream."""
        own = {name + key: value for name, part in self._parts().items() for key, value in part.remember().items()}
        return own | {"past": self.past}

    def recall(self, kept: dict[str, Any]) -> None:
        """Go on where `remember` was asked."""
        self.past = kept["past"]
        for name, part in self._parts().items():
            part.recall({key.removeprefix(name): value for key, value in kept.items() if key.startswith(name)})

    def _parts(self) -> dict[str, Remembering]:
        parts: dict[str, Remembering | None] = {
            "level.": self.level,
            "means.": self.means,
            "residuals.": self.residuals,
        }
        return {name: part for name, part in parts.items() if part is not None}
