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
from at_infer.models.blame import ACTIVITIES, PatternViews, explain
from at_infer.models.parts import LINEAR_VIEWS, PartWeights, fuse_parts, part_divisor, part_weights
from at_infer.models.pattern_distances import PatternDistances, known_patterns
from at_infer.models.patterns import LIVE_ROWS, WHOLE_ROWS, PatternView
from at_infer.models.statistics import ViewStatistics
from at_infer.models.view_sums import ACTIVITY_AHEAD, ACTIVITY_VIEWS, ViewSums
from at_infer.models.view_units import Normalised, views_of
from at_infer.models.views import MovingMeans, Remembering, SeriesViews, Sums
from at_infer.models.views import lookback as views_lookback

Floats = NDArray[np.float32]

LABELS = ("shape", "next row", "rows ahead", "burst", "burst", "level", "stuck", "pattern", "pattern")
"""Name of a cause, by the number of its view."""
BLOCK_ROWS = 1000
"""Rows that are worked on at once: what belongs to them fits into the cache of a core."""


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
        self.features = len(known.next)
        text, rows = (known.live_patterns, LIVE_ROWS) if causal else (known.patterns, WHOLE_ROWS)
        self.nearest = known_patterns(text, self.features, rows) if text else None
        """Normal patterns; None if the model has none."""
        patterns: tuple[PatternView, ...] = () if self.nearest is None else self.nearest.views
        self.pattern_views = PatternViews(len(patterns), known.pattern_weight)
        self.pattern_unit = np.array([scale.spread[view] for view in patterns], np.float32).T
        self.count = len(views_of(score.level)) + len(patterns)
        """Of views."""
        self.weights = part_weights(known, [*views_of(score.level), *patterns])
        self.weights_of_onset = self.weights if causal else part_weights(known, [*LINEAR_VIEWS, *patterns])
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
        past = [(width // 2, 0) for width in self.widths] if self.onset else []
        spans = smoothing(self.widths, causal=self.causal, delay=self.delay) + past
        self.views = SeriesViews(
            self.predictions, causal=self.causal, level=self.level, number=self.number, past_shape=self.past_shape
        )
        self.means, late = MovingMeans(spans), self.onset and not self.causal
        self.patterns: PatternDistances | None = None
        if self.nearest is not None:
            self.patterns = PatternDistances(self.nearest, self.pattern_unit, causal=self.causal)
        self.sums = ViewSums(
            self.views, self.normalised, self.means, patterns=self.patterns, signed=self.explain, late=late
        )
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
            **{f"{name}{key}": value for name, part in self._parts().items() for key, value in part.remember().items()},
        }

    def recall(self, kept: dict[str, Any]) -> None:
        """Go on where `remember` was asked."""
        self.number, self.begun = kept["number"], bool(kept["begun"])
        if self.mask:
            self.missing = kept["missing"]
            self.viewed = self.missing.shape[1]  # a causal stream holds no views back
        for name, part in self._parts().items():
            part.recall({key.removeprefix(name): value for key, value in kept.items() if key.startswith(name)})

    def _parts(self) -> dict[str, SeriesViews | Remembering]:
        parts: dict[str, SeriesViews | Remembering | None] = {
            "views.": self.views,
            "means.": self.means,
            "patterns.": self.patterns,
        }
        return {name: part for name, part in parts.items() if part is not None}

    def _take_back(self) -> None:
        if self.lent is not None:
            self.lent.leave(self)

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
        for first in range(0, max(1, len(rows)), BLOCK_ROWS):
            last, block = end and first + BLOCK_ROWS >= len(rows), rows[first : first + BLOCK_ROWS]
            if self.mask:
                self.missing = np.concatenate([self.missing, block[:, -self.features :].T], axis=1)
            with walking_rows():
                found.append(self._score_block(block, end=last))
        return np.concatenate(found) if len(found) > 1 else found[0]

    def _score_block(self, rows: Floats, *, end: bool) -> Floats:
        given = rows.reshape(len(rows), -1 if rows.size else self.row_width // self.features, self.features)
        x, residual, *more = np.ascontiguousarray(given.transpose(1, 2, 0))
        shape, change = None if self.past_shape else more[0], self._hide if self.mask else None
        sums, widths, count = self.sums.add(x, residual, shape, end=end, change=change), len(self.widths), self.count
        roots = [np.sqrt(total[:, :count]) for total, _ in sums[:widths]]
        past = [np.sqrt(total[:, :count] if self.causal else self._linear(total)) for total, _ in sums[widths:]]
        if self.mask:
            present = self._present(roots[0].shape[-1])
            if present is not None:
                roots, past = ([root * present[:, None] for root in of] for of in (roots, past))
        score, logs = self._score(roots, sums[:widths], self.weights)
        found = [score]
        if self.explain:
            signs = sums[0].total[:, count : count + len(ACTIVITIES)]
            by_row = np.array(roots).transpose(0, 3, 2, 1)
            found += explain(by_row, logs, signs.transpose(2, 1, 0), score, self.pattern_views)
        if self.onset:
            found.append(self._score(past, sums[widths:], self.weights_of_onset)[0])
        return np.concatenate(found, axis=1) if len(found) > 1 else score

    def _linear(self, total: Floats) -> Floats:
        """Views that depend on no later row: the others do, as a reconstruction depends on all rows of its window."""
        first, late = ACTIVITY_VIEWS.start, len(self.weights_of_onset.of_parts) // len(self.widths) - len(ACTIVITIES)
        return np.concatenate([total[:, first - len(ACTIVITIES) : first], total[:, -late:]], axis=1)

    def _hide(self, deviations: Floats) -> Floats:
        """Missing features count as normal."""
        begin, self.viewed = self.viewed, self.viewed + deviations.shape[-1]
        return np.where(self.missing[:, None, begin : self.viewed] > 0, np.float32(1), deviations)

    def _present(self, count: int) -> Floats | None:
        """For the next rows zero where a feature is missing, and more for the others, so that means over all are those
        of the others; None if all are there.
        """
        missing, self.missing, self.viewed = self.missing[:, :count], self.missing[:, count:], self.viewed - count
        if not missing.any():
            return None
        present = 1 - missing
        return np.asarray(present * (np.float32(self.features) / present.sum(axis=0)))

    def _score(self, roots: Sequence[Floats], sums: Sequence[Sums], weights: PartWeights) -> tuple[Floats, Floats]:
        """Roots of sums of squares (F,V,n), by width -> scores (n,1), weighted logarithms of parts (WV,n)."""
        # Added up one by one, since there are several views: over one row of memory numpy would take another order.
        parts = [
            np.add.reduce(root, axis=0) / part_divisor(of.rows, self.features)
            for root, of in zip(roots, sums, strict=True)
        ]
        return fuse_parts(np.concatenate(parts, axis=-2), weights, self.unit)


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
