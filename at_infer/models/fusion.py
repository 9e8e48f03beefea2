"""Mode `fusion`: several views of a series at several widths, in units of validation statistics, as one score.

Each view of each feature is squared and divided by its mean square on the validation part, averaged over some rows,
and its root taken. A part is the mean of that over the features, for one view and one width; it is about 1 on normal
rows. The score is the weighted geometric mean of the parts: high where several of them are.
"""

from collections.abc import Iterator, Sequence
from concurrent.futures import Executor
from contextlib import contextmanager
from itertools import pairwise
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from at_infer.config import Level, ScoreConfig
from at_infer.models.blame import ACTIVITIES, EPSILON, explain
from at_infer.models.statistics import ViewStatistics
from at_infer.models.view_means import ACTIVITY_AHEAD, ACTIVITY_VIEWS, Roots, ViewMeans
from at_infer.models.view_units import Normalised, views_of
from at_infer.models.views import VIEWS, MovingMeans, SeriesViews, View
from at_infer.models.views import lookback as views_lookback

Floats = NDArray[np.float32]

NETWORK_VIEWS: tuple[View, ...] = ("shape", "level")
LINEAR_VIEWS = [view for view in VIEWS if view not in NETWORK_VIEWS]
LABELS = ("shape", "next row", "rows ahead", "burst", "burst", "level", "stuck")
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
        helpers: Sequence[Executor] = (),
    ) -> None:
        """Each of the `helpers` works on a part of the features; such a series cannot be remembered."""
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
        parts = len(helpers) + 1
        self.helpers, self.cuts = helpers, [self.features * k // parts for k in range(parts + 1)]
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
        self.parts = [self._part(slice(*cut), spans) for cut in pairwise(self.cuts)]
        self.missing = np.empty((self.features, 0), np.float32)
        """Of rows that are not final yet."""
        self.viewed = 0
        """How many of them have views already."""

    def _part(self, features: slice, spans: Sequence[tuple[int, int]]) -> ViewMeans:
        views = SeriesViews(
            [(coefficients[features], usual[features]) for coefficients, usual in self.predictions],
            causal=self.causal,
            level=self.level,
            number=self.number,
            past_shape=self.past_shape,
        )
        late = self.onset and not self.causal
        return ViewMeans(views, self.normalised.of(features), MovingMeans(spans), signed=self.explain, late=late)

    @property
    def views(self) -> SeriesViews:
        """Of a series whose features are not in parts."""
        return self.parts[0].views

    @property
    def means(self) -> MovingMeans:
        """The same."""
        return self.parts[0].means

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
    def is_steady(self) -> bool:
        """Every further row makes one final, by the same operations as in any other series that is steady."""
        if self.lent is not None:
            return True
        level = self.views.level
        begun = self.causal and len(self.parts) == 1 and self.means.seen >= self.steady_rows
        return begun and not (self.mask or self.onset) and (level is None or level.early is None)

    def _advance(self, rows: Floats, *, end: bool) -> Floats:
        """The next rows (n,3F), in blocks that fit into the cache -> rows (m,C) that are final."""
        found = []
        for first in range(0, max(1, len(rows)), BLOCK_ROWS):
            last, block = end and first + BLOCK_ROWS >= len(rows), rows[first : first + BLOCK_ROWS]
            if self.mask:
                self.missing = np.concatenate([self.missing, block[:, -self.features :].T], axis=1)
            others = [helper.submit(self._roots, k, block, last) for k, helper in enumerate(self.helpers, start=1)]
            of_parts = [self._roots(0, block, last), *(other.result() for other in others)]
            with walking_rows():
                found.append(self._fuse(of_parts))
        return np.concatenate(found) if len(found) > 1 else found[0]

    def _roots(self, part: int, rows: Floats, end: bool) -> Roots:
        """Of some features; what belongs to others is not touched, so that threads may do it."""
        own, count, widths = slice(*self.cuts[part : part + 2]), len(self.normalised.centre[0]), len(self.widths)
        with walking_rows():
            given = rows.reshape(len(rows), -1 if rows.size else self.row_width // self.features, self.features)
            x, residual, *more = np.ascontiguousarray(given[:, :, own].transpose(1, 2, 0))
            shape = None if self.past_shape else more[0]
            means = self.parts[part].add(x, residual, shape, end=end, change=self._hide if self.mask else None)
            past = [mean[:, :count] if self.causal else _linear(mean) for mean in means[widths:]]
            roots = [np.sqrt(mean) for mean in [*(mean[:, :count] for mean in means[:widths]), *past]]
        return Roots(roots[:widths], roots[widths:], means[0][:, count : count + len(ACTIVITIES)])

    def _hide(self, deviations: Floats) -> Floats:
        """Missing features count as normal."""
        begin, self.viewed = self.viewed, self.viewed + deviations.shape[-1]
        return np.where(self.missing[:, None, begin : self.viewed] > 0, np.float32(1), deviations)

    def _without_missing(self, roots: Roots) -> Roots:
        """Zero where a feature is missing, and more of the others, so that means over all are those of the others."""
        count = roots.of_widths[0].shape[-1]
        missing, self.missing, self.viewed = self.missing[:, :count], self.missing[:, count:], self.viewed - count
        if not missing.any():
            return roots
        present = 1 - missing
        weight = present * (np.float32(self.features) / present.sum(axis=0))
        of_widths, of_past = ([root * weight[:, None] for root in of] for of in (roots.of_widths, roots.of_past))
        return Roots(of_widths, of_past, roots.signs)

    def _fuse(self, of_parts: list[Roots]) -> Floats:
        """What was found of each part of the features -> rows (m,C) that are final."""
        if self.mask:
            of_parts = [self._without_missing(roots) for roots in of_parts]
        score, logs = self._score([roots.of_widths for roots in of_parts], self.weights)
        found = [score]
        if self.explain:
            by_width = zip(*(roots.of_widths for roots in of_parts), strict=True)
            signs = np.concatenate([roots.signs for roots in of_parts])
            whole = [np.concatenate(of_width).transpose(2, 1, 0) for of_width in by_width]
            found += explain(whole, logs, signs.transpose(2, 1, 0), score)
        if self.onset:
            found.append(self._score([roots.of_past for roots in of_parts], self.weights_of_onset)[0])
        return np.concatenate(found, axis=1) if len(found) > 1 else score

    def _score(self, roots: list[list[Floats]], weights: Floats) -> tuple[Floats, Floats]:
        """Roots of mean squares (F,V,n), by part and width -> scores (n,1), weighted logarithms of parts (WV,n)."""
        parts = [add_features(of_width) / np.float32(self.features) for of_width in zip(*roots, strict=True)]
        return fuse_parts(np.concatenate(parts, axis=-2), weights, self.unit)


def add_features(parts: Sequence[Floats]) -> Floats:
    """Sums (V,n) over the features of all parts (F,V,n), in the same order however they are cut."""
    # One by one, since there are several views: over one row of memory numpy would add up in another order.
    total: Floats = np.add.reduce(parts[0], axis=0)
    for part in parts[1:]:
        for feature in part:
            total += feature
    return total


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
