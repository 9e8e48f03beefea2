"""Mode `fusion`: several views of a series at several widths, in units of validation statistics, as one score.

Each view of each feature is squared and divided by its mean square on the validation part, averaged over some rows,
and its root taken. A part is the mean of that over the features, for one view and one width; it is about 1 on normal
rows. The score is the weighted geometric mean of the parts: high where several of them are.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from at_infer.config import Level, ScoreConfig
from at_infer.models.blame import ACTIVITIES, EPSILON, explain
from at_infer.models.statistics import ViewStatistics
from at_infer.models.view_units import Normalised, views_of
from at_infer.models.views import ACTIVITY, VIEWS, MovingMeans, SeriesViews, View
from at_infer.models.views import lookback as views_lookback

Floats = NDArray[np.float32]

NETWORK_VIEWS: tuple[View, ...] = ("shape", "level")
LINEAR_VIEWS = [view for view in VIEWS if view not in NETWORK_VIEWS]
LABELS = ("shape", "next row", "rows ahead", "burst", "burst", "level", "stuck")
"""Name of a cause, by the number of its view."""
ACTIVITY_VIEWS = slice(VIEWS.index(ACTIVITIES[0]), VIEWS.index(ACTIVITIES[-1]) + 1)
ACTIVITY_AHEAD = ACTIVITY - 1 - ACTIVITY // 2
"""Rows behind a row that its activity depends on, in whole windows."""
BLOCK_ROWS = 1000
"""Rows that are worked on at once: what belongs to them fits into the cache of a core."""
LARGEST = np.float32(1e30)


def lookback(widths: Sequence[int], level: Level, *, onset: bool = False) -> int:
    """How many rows before a row its score may depend on, and its onset too."""
    return views_lookback(level) + max(widths) // 2 + (ACTIVITY_AHEAD if onset else 0)


def lookahead(widths: Sequence[int], *, causal: bool, delay: int = 0) -> int:
    """How many rows behind a row its score may depend on."""
    after = max(after for _, after in smoothing(widths, causal=causal, delay=delay))
    return after if causal else after + ACTIVITY_AHEAD


def smoothing(widths: Sequence[int], *, causal: bool, delay: int = 0) -> list[tuple[int, int]]:
    """Rows before and behind a row that each width averages over; a causal score looks ahead by `delay` at most."""
    return [(width // 2, min(delay, (width - 1) // 2) if causal else (width - 1) // 2) for width in widths]


class Lender(Protocol):
    """Has the memory of series whose rows come one by one."""

    def leave(self, fusion: "Fusion") -> None:
        """Give it back."""


class Fusion:
    """One series: engine outputs of rows in, scores out; rows without a score restart it.

    A row of the input is (3F,): scaled values, residuals, shapes; or (2F,) if the shapes of live rows are made of their
    past (`live_shape`). With `explain`, behind the score stand the part that
    each feature has in it (F), and for each feature the number of the view that shows it most (F). With `onset`, last
    stands a score from the row and those before it only, of whole windows without the views that need the network: it
    rises where the cause is, while the score rises up to half a width earlier. With `mask`, a row
    has F more entries, 1 where a feature is missing: it is left out of the means over the features, and counts as
    normal in those over rows.
    """

    def __init__(
        self,
        known: ViewStatistics,
        score: ScoreConfig,
        *,
        causal: bool,
        delay: int = 0,
        explain: bool = False,
        onset: bool = False,
        number: int = 0,
        mask: bool = False,
    ) -> None:
        self.onset = onset
        self.level, self.causal, self.delay, self.explain, self.mask = score.level, causal, delay, explain, mask
        scale = known.live if causal else known.whole
        self.normalised, self.unit = Normalised(scale, score.level), np.float32(scale.unit)
        self.widths = known.widths
        self.steady_rows = lookback(self.widths, "fixed") + max(self.widths)
        """After this many rows, every mean of a causal score is complete."""
        self.weights = part_weights(known.network_weight, views_of(score.level), self.widths)
        self.weights_of_onset = self.weights if causal else part_weights(1.0, LINEAR_VIEWS, self.widths)
        self.features = len(known.next)
        self.past_shape = causal and known.live_shape == "past"
        self.predictions = [
            (np.asarray(coefficients, np.float32), np.asarray(scale.spread[view], np.float32))
            for view, coefficients in (("next", known.next), ("ahead", known.ahead))
        ]
        self.number = number
        """Of the next row in its series."""
        self.lent: Lender | None = None
        """Who has what is remembered of the rows before; it is taken back for all but the next single row."""
        self.place = 0
        """Among those that it was lent to."""
        self._begin()

    @property
    def row_width(self) -> int:
        """Of a row that goes in."""
        return (3 - self.past_shape + self.mask) * self.features

    @property
    def channels(self) -> int:
        """Of a row that comes out."""
        return 1 + (2 * self.features if self.explain else 0) + self.onset

    def _begin(self) -> None:
        self.begun = False
        self.views = SeriesViews(
            self.predictions,
            causal=self.causal,
            level=self.level,
            number=self.number,
            past_shape=self.past_shape,
        )
        past = [(width // 2, 0) for width in self.widths] if self.onset else []
        self.means = MovingMeans(smoothing(self.widths, causal=self.causal, delay=self.delay) + past)
        self.late: Floats | None = None
        """Squared activity of the last rows; None before the first."""
        self.missing = np.empty((self.features, 0), np.float32)
        """Of rows that are not final yet."""
        self.viewed = 0
        """How many of them have views already."""

    def add(self, rows: Floats) -> Floats:
        """Rows (n,3F) or (n,2F), NaN without a score -> rows (m,C) that are final."""
        self._take_back()
        found = []
        for part, scored in _runs(rows):
            if scored:
                found.append(self._advance(part, end=False))
                self.begun = True
                self.number += len(part)
            else:
                if self.begun:
                    found.append(self._advance(part[:0], end=True))
                self.number += len(part)
                self._begin()
                found.append(np.full((len(part), self.channels), np.nan, np.float32))
        return np.concatenate(found) if found else np.empty((0, self.channels), np.float32)

    def end(self) -> Floats:
        """The rows that waited for others behind them."""
        self._take_back()
        if not self.begun:
            return np.empty((0, self.channels), np.float32)
        return self._advance(np.empty((0, self.row_width), np.float32), end=True)

    def remember(self) -> dict[str, Any]:
        """Everything that the scores of rows to come depend on: numbers and arrays by name."""
        self._take_back()
        return {
            "number": self.number,
            "begun": int(self.begun),
            **({"missing": self.missing} if self.mask else {}),
            **{f"views.{name}": value for name, value in self.views.remember().items()},
            **{f"means.{name}": value for name, value in self.means.remember().items()},
        }

    def recall(self, kept: dict[str, Any]) -> None:
        """Go on where `remember` was asked."""
        self.number, self.begun = kept["number"], bool(kept["begun"])
        if self.mask:
            self.missing = kept["missing"]
            self.viewed = self.missing.shape[1]  # a causal stream holds no views back
        for name, part in (("views.", self.views), ("means.", self.means)):
            part.recall({key.removeprefix(name): value for key, value in kept.items() if key.startswith(name)})

    def _take_back(self) -> None:
        if self.lent is not None:
            self.lent.leave(self)

    @property
    def all_means(self) -> list[MovingMeans]:
        """What it remembers of the rows before."""
        residuals = self.views.residuals
        return [self.means, self.views.means, *([] if residuals is None else [residuals])]

    @property
    def is_steady(self) -> bool:
        """Every further row makes one final, by the same operations as in any other series that is steady."""
        if self.lent is not None:
            return True
        level = self.views.level
        begun = self.causal and self.means.seen >= self.steady_rows
        return begun and not (self.mask or self.onset) and (level is None or level.early is None)

    def _advance(self, rows: Floats, *, end: bool) -> Floats:
        """The next rows (n,3F), in blocks that fit into the cache -> rows (m,C) that are final."""
        found = []
        with walking_rows():
            for first in range(0, max(1, len(rows)), BLOCK_ROWS):
                last = end and first + BLOCK_ROWS >= len(rows)
                block = np.ascontiguousarray(rows[first : first + BLOCK_ROWS].T)
                x, residual, *more = block.reshape(len(block) // self.features, self.features, -1 if block.size else 0)
                if self.mask:
                    self.missing = np.concatenate([self.missing, more[-1]], axis=1)
                shape = None if self.past_shape else more[0]
                found.append(self.score_views(self.views.add(x, residual, shape, end=last), end=last))
        return np.concatenate(found) if len(found) > 1 else found[0]

    def _without_missing(self, roots: list[Floats]) -> list[Floats]:
        """Zero where a feature is missing, and more of the others, so that means over all are those of the others."""
        count = roots[0].shape[-1]
        missing, self.missing, self.viewed = self.missing[:, :count], self.missing[:, count:], self.viewed - count
        if not missing.any():
            return roots
        present = 1 - missing
        weight = present * (np.float32(self.features) / present.sum(axis=0))
        return [root * weight[:, None] for root in roots]

    def score_views(self, views: Floats, *, end: bool) -> Floats:
        """Signed views (F,V,n) -> rows (m,C) that are final."""
        deviations = self.normalised(views)
        if self.mask:
            begin, self.viewed = self.viewed, self.viewed + deviations.shape[-1]
            missing = self.missing[:, None, begin : self.viewed] > 0
            deviations = np.where(missing, np.float32(1), deviations)
        count, widths = deviations.shape[-2], len(self.widths)
        signed = deviations[..., ACTIVITY_VIEWS, :].copy() if self.explain else deviations[..., :0, :]
        squares: Floats = np.square(deviations, out=deviations)
        if not squares.max(initial=0) <= LARGEST:
            np.minimum(squares, LARGEST, out=squares)
        more = [signed] if self.explain else []  # whether activity is too high or too low
        if self.onset and not self.causal:
            more.append(self._delayed(squares[..., ACTIVITY_VIEWS, :]))
        means = self.means.add(np.concatenate([squares, *more], axis=-2) if more else squares, end=end)
        past = [mean[..., :count, :] if self.causal else _linear(mean) for mean in means[widths:]]
        roots = [np.sqrt(mean) for mean in [*(mean[..., :count, :] for mean in means[:widths]), *past]]
        if self.mask:
            roots = self._without_missing(roots)
        roots, roots_of_past = roots[:widths], roots[widths:]
        score, logs = self._fuse(roots, self.weights)
        found = [score]
        if self.explain:
            signs = means[0][:, count : count + len(ACTIVITIES)].transpose(2, 1, 0)
            found += explain([root.transpose(2, 1, 0) for root in roots], logs, signs, score)
        if self.onset:
            found.append(self._fuse(roots_of_past, self.weights_of_onset)[0])
        return np.concatenate(found, axis=1) if len(found) > 1 else score

    def _delayed(self, activity: Floats) -> Floats:
        """That of the row so much earlier that it depends on no later one; the first row stands for those before it."""
        count = activity.shape[-1]
        if not count:
            return activity
        late = np.repeat(activity[..., :1], ACTIVITY_AHEAD, axis=-1) if self.late is None else self.late
        known = np.concatenate([late, activity], axis=-1)
        self.late = known[..., count:].copy()
        return known[..., :count]

    def _fuse(self, roots: list[Floats], weights: Floats) -> tuple[Floats, Floats]:
        """Roots of mean squares (F,V,n), one array per width -> scores (n,1), weighted logarithms of parts (WV,n)."""
        # Feature by feature, since there are several views; over one row of memory numpy would add up in another order.
        parts = [np.add.reduce(root, axis=-3) / np.float32(self.features) for root in roots]
        return fuse_parts(np.concatenate(parts, axis=-2), weights, self.unit)


def part_weights(network_weight: float, views: Sequence[View], widths: Sequence[int]) -> Floats:
    """Of the parts (WV,1) in their geometric mean: of views that need the network, and 1 of the others."""
    weights = [network_weight if view in NETWORK_VIEWS else 1.0 for view in views]
    return np.array(weights * len(widths), np.float32)[:, None]


def fuse_parts(parts: Floats, weights: Floats, unit: np.float32) -> tuple[Floats, Floats]:
    """Parts (WV,n) -> scores (n,1), weighted logarithms of the parts (WV,n)."""
    logs = np.log(parts + EPSILON)
    logs *= weights
    total = np.add.accumulate(logs, axis=-2)[..., -1, :]  # one by one, as the features
    return np.asarray(np.exp(total / weights.sum()) / unit, np.float32)[..., None], logs


def _linear(mean: Floats) -> Floats:
    """Views that depend on no later row: the others do, as a reconstruction depends on all rows of its window."""
    first, count = ACTIVITY_VIEWS.start, len(ACTIVITIES)
    return np.concatenate([mean[..., first - count : first, :], mean[..., -count:, :]], axis=-2)


@contextmanager
def walking_rows() -> Iterator[None]:
    """Overflows are limited later; and no buffers: numpy would copy rows of several features together to fill them."""
    before = np.setbufsize(16)
    try:
        with np.errstate(over="ignore", invalid="ignore"):
            yield
    finally:
        np.setbufsize(before)


def fuse_windows(rows: Floats, known: ViewStatistics, score: ScoreConfig) -> Floats:
    """Each window (N,3F) of a batch as a series of its own -> scores (B,N)."""
    series = (Fusion(known, score, causal=False) for _ in rows)
    scored = [np.concatenate([one.add(window), one.end()])[:, 0] for one, window in zip(series, rows, strict=True)]
    return np.stack(scored)


def _runs(rows: Floats) -> Iterator[tuple[Floats, bool]]:
    """Consecutive rows that all have a score, or all have none."""
    if len(rows) and not np.isnan(rows.min()):
        yield rows, True
        return
    scored = np.asarray(~np.isnan(rows).any(axis=1))
    cuts = [0, *(np.flatnonzero(scored[1:] != scored[:-1]) + 1).tolist(), len(rows)]
    for first, end in pairwise(cuts):
        if end > first:
            yield rows[first:end], bool(scored[first])
