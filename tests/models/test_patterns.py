"""Distances to normal patterns against brute force, in every way that rows come, and inside mode fusion.

Of a single feature and of several: two kinds of patterns with the same duties.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from at_infer.config import ScoreConfig
from at_infer.errors import ConfigError
from at_infer.models.fusion import LABELS, Fusion, lookahead, lookback
from at_infer.models.fusion_together import Together
from at_infer.models.pattern_distances import PatternDistances, known_patterns, measure_patterns
from at_infer.models.patterns import LIVE_ROWS, WHOLE_ROWS, Patterns, encode
from at_infer.models.patterns_of_one import LEAST_HEIGHT
from at_infer.models.patterns_of_several import MEAN_ROWS
from at_infer.models.statistics import ViewScale, ViewStatistics
from tests.models.test_fusion import KNOWN, SCORE, F, box, brute_force, series
from training.patterns import (
    MOST_FEATURES,
    PATTERNS_OF_ONE,
    PATTERNS_OF_SEVERAL,
    _stretches,
    fit_one,
    fit_several,
    with_patterns,
)


def distances_of_one(x: np.ndarray, patterns: np.ndarray) -> np.ndarray:
    """Of the stretch that ends with each row that has enough before it: (n,1,2)."""
    rows = patterns.shape[-1]
    stretches = np.stack([x[i : i + rows].T for i in range(len(x) - rows + 1)]).astype(np.float64)  # (n,1,R)
    level = stretches - stretches.mean(axis=-1, keepdims=True)
    form = level / np.maximum(level.std(axis=-1, keepdims=True), LEAST_HEIGHT)
    found = [
        ((rows[:, :, None] - patterns[None, :, kind]) ** 2).sum(axis=-1).min(axis=-1)
        for kind, rows in enumerate((level, form))
    ]
    return np.stack(found, axis=-1)


def distances_of_several(x: np.ndarray, patterns: np.ndarray) -> np.ndarray:
    """The same for all features together: (n,F,1)."""
    rows, found = patterns.shape[1] * MEAN_ROWS, []
    for i in range(len(x) - rows + 1):
        means = x[i : i + rows].astype(np.float64).reshape(-1, MEAN_ROWS, x.shape[1]).mean(axis=1)
        rest = (means - means.mean(axis=0) - patterns) ** 2  # (K,S,F)
        found.append(rest[rest.sum(axis=(1, 2)).argmin()].sum(axis=0))
    return np.stack(found)[..., None]


@dataclass(frozen=True)
class Case:
    """So many features, what a model knows of them, and how their patterns and distances are found otherwise."""

    features: int
    fit: Callable[..., np.ndarray | None]
    distances: Callable[[np.ndarray, np.ndarray], np.ndarray]
    known: ViewStatistics

    def series(self, rows: int, seed: int = 0) -> np.ndarray:
        """Scaled values, residuals and shapes (n,3F)."""
        return series(rows, seed).reshape(rows, 3, F)[..., : self.features].reshape(rows, -1)

    def x(self, rows: int, seed: int = 0) -> np.ndarray:
        return self.series(rows, seed)[:, : self.features]

    @cached_property
    def patterns(self) -> dict[int, np.ndarray]:
        """By their rows."""
        found = {rows: self.fit([self.x(1500, seed=1)], rows) for rows in (WHOLE_ROWS, LIVE_ROWS)}
        return {rows: patterns for rows, patterns in found.items() if patterns is not None}

    @cached_property
    def nearest(self) -> dict[int, Patterns]:
        return {rows: known_patterns(encode(own), self.features, rows) for rows, own in self.patterns.items()}

    @cached_property
    def having(self) -> ViewStatistics:
        """The same model with patterns."""
        trained = self.x(1500, seed=1).T
        whole, live = (
            replace(scale, spread=scale.spread | measure_patterns(self.nearest[rows], [trained]))
            for rows, scale in ((WHOLE_ROWS, self.known.whole), (LIVE_ROWS, self.known.live))
        )
        texts = [encode(self.patterns[rows]) for rows in (WHOLE_ROWS, LIVE_ROWS)]
        return replace(
            self.known, whole=whole, live=live, patterns=texts[0], live_patterns=texts[1], pattern_weight=2.5
        )

    def scored(self, rows: np.ndarray, **options: Any) -> np.ndarray:
        fusion = Fusion(self.having, options.pop("score", SCORE), **{"causal": False} | options)
        return np.concatenate([fusion.add(rows), fusion.end()])


def of_one(known: ViewStatistics) -> ViewStatistics:
    """Of the first feature alone."""
    whole, live = (
        ViewScale(
            centre={name: values[:1] for name, values in scale.centre.items()},
            spread={name: values[:1] for name, values in scale.spread.items()},
        )
        for scale in (known.whole, known.live)
    )
    return replace(known, next=known.next[:1], ahead=known.ahead[:1], whole=whole, live=live)


ONE = Case(1, fit_one, distances_of_one, of_one(KNOWN))
SEVERAL = Case(F, fit_several, distances_of_several, KNOWN)
of_both = pytest.mark.parametrize("case", [ONE, SEVERAL], ids=["one", "several"])


@of_both
@pytest.mark.parametrize("rows", [50, 51, 66, 400])
def test_distances_equal_brute_force(case: Case, rows: int) -> None:
    x = case.x(rows)
    x[30:] *= 3
    for own, nearest in case.nearest.items():
        found = nearest.squared_distances(x.T.copy()).transpose(2, 0, 1)
        np.testing.assert_allclose(found, case.distances(x, case.patterns[own]), rtol=1e-4, atol=1e-3)


@of_both
def test_a_row_has_the_same_distance_whatever_comes_with_it(case: Case) -> None:
    nearest, x = case.nearest[WHOLE_ROWS], np.ascontiguousarray(case.x(300).T)
    expected = nearest.squared_distances(x)
    for first in range(251):
        stretch = x[:, first : first + WHOLE_ROWS]
        for one in (nearest.squared_distances(stretch), nearest.of_stretches(stretch[:, None])):
            np.testing.assert_array_equal(one[..., 0], expected[..., first])


@of_both
@pytest.mark.parametrize("value", [0.0, 1.0, -1e6, 1e30, -3e38])
def test_distances_of_constants_and_extremes_are_finite(case: Case, value: float) -> None:
    x = np.full((case.features, 120), value, np.float32)
    x[:, 60] = 5
    assert np.isfinite(case.nearest[WHOLE_ROWS].squared_distances(x)).all()


@of_both
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("rows", [1, 23, 24, 25, 49, 50, 75, 300])
def test_in_whole_windows_a_row_is_in_the_middle_of_its_stretch_and_live_it_is_the_last(
    case: Case, rows: int, causal: bool
) -> None:
    x, nearest = case.x(rows), case.nearest[WHOLE_ROWS]
    unit = np.full((case.features, len(nearest.views)), 2, np.float32)
    whole = PatternDistances(nearest, unit, causal=causal)
    expected = np.ones((*unit.shape, rows), np.float32)
    if rows >= WHOLE_ROWS:
        known = nearest.squared_distances(np.ascontiguousarray(x.T)) / 4
        first = WHOLE_ROWS - 1 if causal else WHOLE_ROWS // 2
        expected[..., first : first + known.shape[-1]] = known
        expected[..., first + known.shape[-1] :] = known[..., -1:]
    np.testing.assert_array_equal(whole.add(x.T, end=True), expected)
    pieces = PatternDistances(nearest, unit, causal=causal)
    cuts = sorted({0, *np.random.default_rng(rows).integers(0, rows + 1, 6).tolist(), rows})
    found = [pieces.add(x[first:end].T) for first, end in pairwise(cuts)]
    found.append(pieces.add(np.empty((case.features, 0), np.float32), end=True))
    np.testing.assert_array_equal(np.concatenate(found, axis=-1), expected)


@of_both
@pytest.mark.parametrize(("causal", "delay"), [(False, 0), (True, 0), (True, 10)])
def test_scores_are_the_weighted_mean_of_the_other_views_and_of_the_distances(
    case: Case, causal: bool, delay: int
) -> None:
    rows, having = case.series(400), case.having
    scale, nearest = (having.live, LIVE_ROWS) if causal else (having.whole, WHOLE_ROWS)
    views = case.nearest[nearest].views
    unit = np.array([scale.spread[view] for view in views], np.float32).T
    distances = PatternDistances(case.nearest[nearest], unit, causal=causal)
    squares = distances.add(rows[:, : case.features].T, end=True).transpose(2, 0, 1)
    logs = []
    for kind in range(len(views)):
        for width in having.widths:
            after = min(delay, (width - 1) // 2) if causal else (width - 1) // 2
            roots = [np.sqrt(box(squares[..., kind].astype(float), row, width // 2, after)) for row in range(len(rows))]
            logs.append(np.log((np.mean(roots, axis=1) + having.part_floor) / (1 + having.part_floor)))
    others = 4 + 2 * having.network_weight
    of_patterns = len(views) * having.pattern_weight
    known = np.log(brute_force(rows, case.known, causal=causal, delay=delay) * scale.unit) * others
    expected = np.exp((known + np.mean(logs, axis=0) * of_patterns) / (others + of_patterns)) / scale.unit
    np.testing.assert_allclose(case.scored(rows, causal=causal, delay=delay)[:, 0], expected, rtol=1e-4)


@of_both
@pytest.mark.parametrize("options", [{}, {"explain": True}, {"onset": True}, {"causal": True, "explain": True}])
def test_scores_in_pieces_are_those_at_once(case: Case, options: dict[str, Any]) -> None:
    rows, fusion, found = case.series(700), Fusion(case.having, SCORE, **{"causal": False} | options), []
    for first, end in pairwise([0, 1, 2, 60, 61, 333, 700]):
        found.append(fusion.add(rows[first:end]))
    found.append(fusion.end())
    np.testing.assert_array_equal(np.concatenate(found), case.scored(rows, **options))


@of_both
def test_live_rows_of_several_series_and_what_they_remember_equal_one_stream(case: Case) -> None:
    rows = case.series(500)
    first, second, together = (Fusion(case.having, SCORE, causal=True, delay=3) for _ in range(3))
    expected = case.scored(rows, causal=True, delay=3)
    before = first.add(rows[:333])
    second.recall(first.remember())
    np.testing.assert_array_equal(np.concatenate([before, second.add(rows[333:]), second.end()]), expected)
    steps = Together()
    found = [steps.add([together], [rows[i : i + 1]])[0] for i in range(500)]
    assert steps.steady is not None
    np.testing.assert_array_equal(np.concatenate([*found, together.end()]), expected)


@of_both
@pytest.mark.parametrize("explain", [False, True])
@pytest.mark.slow
def test_series_that_advance_together_score_as_each_by_itself(case: Case, explain: bool) -> None:
    rows = [case.series(560, seed=seed)[seed:] for seed in range(5)]
    together, alone = (
        [Fusion(case.having, SCORE, causal=True, delay=3, explain=explain) for _ in rows] for _ in range(2)
    )
    steps, at = Together(), 0
    for size in [200, *[1] * 60, 2, 1, 9, 16, 40, 1, 3, *[1] * 100, 65, 20]:
        found = steps.add(together, [own[at : at + size] for own in rows])
        expected = [fusion.add(own[at : at + size]) for fusion, own in zip(alone, rows, strict=True)]
        at += size
        for one, other in zip(found, expected, strict=True):
            np.testing.assert_array_equal(one, other)
    for name, value in together[0].remember().items():
        np.testing.assert_array_equal(value, alone[0].remember()[name])


@of_both
@pytest.mark.parametrize("causal", [False, True])
def test_no_row_further_away_than_said_changes_a_score(case: Case, causal: bool) -> None:
    rows, widths = case.series(1700), case.having.widths
    expected = case.scored(rows, causal=causal)
    first = 1500 - lookback(widths, "recent")
    first -= first % 20
    np.testing.assert_array_equal(case.scored(rows[first:], causal=causal)[1500 - first :], expected[1500:])
    until = 1500 + lookahead(widths, causal=causal) + 1
    np.testing.assert_array_equal(case.scored(rows[:until], causal=causal)[:1501], expected[:1501])


@of_both
def test_the_onset_counts_patterns_and_depends_on_no_later_row(case: Case) -> None:
    rows = case.series(700)
    found = case.scored(rows, onset=True)
    spiked = rows.copy()
    spiked[350, : case.features] += 30
    changed = np.flatnonzero(case.scored(spiked, onset=True)[:, 1] != found[:, 1])
    assert changed[0] == 350
    np.testing.assert_array_equal(case.scored(rows[:400], onset=True)[:352, 1], found[:352, 1])
    without = Fusion(case.known, SCORE, causal=False, onset=True)
    assert (found[:, 1] != np.concatenate([without.add(rows), without.end()])[:, 1]).any()


@of_both
@pytest.mark.parametrize("level", ["recent", "ignore"])
def test_an_unknown_pattern_is_named_as_the_cause(case: Case, level: Any) -> None:
    rows, at_fault = case.series(1000, seed=3), case.features // 2
    rows[600:700, at_fault] += 1.5 * np.sin(np.arange(600, 700) / (5, 9)[at_fault])  # higher, as easy to predict
    found = case.scored(rows, explain=True, score=ScoreConfig(level=level))
    at = slice(620, 680)
    assert found[at, 0].mean() > 1.1 * case.scored(case.series(1000, seed=3))[at, 0].mean()
    assert (found[at, 1 : 1 + case.features].argmax(axis=1) == at_fault).mean() > 0.9
    named = {LABELS[int(view)] for view in found[at, 1 + case.features :][:, at_fault]}
    assert "pattern" in named
    assert named <= set(LABELS)


def test_of_several_features_a_missing_one_counts_as_normal() -> None:
    rows, missing = SEVERAL.series(600), np.zeros((600, F), np.float32)
    fusion = Fusion(SEVERAL.having, SCORE, causal=False, mask=True)
    expected = SEVERAL.scored(rows)
    known = np.concatenate([fusion.add(np.concatenate([rows, missing], axis=1)), fusion.end()])
    np.testing.assert_array_equal(known, expected)
    rows[200:500, 1], missing[200:500, 1] = rows[199, 1], 1  # the last value
    fusion = Fusion(SEVERAL.having, SCORE, causal=False, mask=True, explain=True)
    found = np.concatenate([fusion.add(np.concatenate([rows, missing], axis=1)), fusion.end()])
    assert (found[300:400, 2] == 0).all()
    np.testing.assert_allclose(found[300:400, 0], expected[300:400, 0], rtol=0.25)  # by two features instead of three


# Patterns as a text, and from training rows


@of_both
def test_patterns_survive_as_text(case: Case) -> None:
    assert ViewStatistics.from_dict(case.having.to_dict()) == case.having


@pytest.mark.parametrize(
    ("features", "text"),
    [
        (1, "?"),
        (1, "AAA"),
        (1, "AAAA"),
        (1, encode(np.full((1, 2, 3, WHOLE_ROWS), np.nan, np.float32))),
        (1, encode(np.zeros((1, 2, 1025, WHOLE_ROWS)))),
        (1, encode(np.zeros((1, 2, 0, WHOLE_ROWS)))),
        (4, "AAAA"),
        (4, encode(np.full((3, 10, 4), np.inf, np.float32))),
        (4, encode(np.zeros((1025, 10, 4)))),
        (4, encode(np.zeros((3, 10, 5)))),
        (4, encode(np.full((3, 10, 4), 3e38))),
    ],
)
def test_texts_that_no_training_writes_are_refused(features: int, text: str) -> None:
    with pytest.raises(ConfigError, match="patterns: are not"):
        known_patterns(text, features, WHOLE_ROWS)


def test_a_model_of_before_has_none() -> None:
    known = ViewStatistics.from_dict({n: v for n, v in KNOWN.to_dict().items() if "pattern" not in n})
    assert known == KNOWN
    assert not known.patterns


@of_both
def test_rows_like_those_of_training_are_near_and_others_are_not(case: Case) -> None:
    trained = case.x(1500, seed=1)
    patterns, again = (case.fit([trained, trained[:700]], LIVE_ROWS) for _ in range(2))
    assert patterns is not None
    one, several = (1, 2, PATTERNS_OF_ONE, LIVE_ROWS), (PATTERNS_OF_SEVERAL, LIVE_ROWS // MEAN_ROWS, F)
    assert patterns.shape == (one if case is ONE else several)
    np.testing.assert_allclose(patterns.mean(axis=-1 if case is ONE else 1), 0, atol=1e-5)
    np.testing.assert_array_equal(again, patterns)
    nearest = known_patterns(encode(patterns), case.features, LIVE_ROWS)
    known, other = (nearest.squared_distances(x.T.copy()).sum(axis=0) for x in (trained, trained[::2]))
    assert (np.median(other, axis=-1) > 1.5 * np.median(known, axis=-1)).all()


@of_both
def test_constant_rows_have_patterns_and_few_rows_have_none(case: Case) -> None:
    patterns = case.fit([np.full((400, case.features), 3, np.float32)], WHOLE_ROWS)
    assert patterns is not None
    np.testing.assert_array_equal(patterns, 0)
    count = PATTERNS_OF_ONE if case is ONE else PATTERNS_OF_SEVERAL
    trained = case.x(1500, seed=1)
    assert case.fit([trained[: count + WHOLE_ROWS - 2]], WHOLE_ROWS) is None
    assert case.fit([trained[:30], trained[: count + WHOLE_ROWS - 1]], WHOLE_ROWS) is not None


def test_distances_of_several_features_are_in_one_unit_and_those_of_one_in_their_own() -> None:
    of_several = SEVERAL.having.whole.spread["pattern"]
    assert len(set(of_several)) == 1
    x = SEVERAL.x(1500, seed=1)
    mean = SEVERAL.distances(x, SEVERAL.patterns[WHOLE_ROWS]).mean() + 1e-4 * WHOLE_ROWS / MEAN_ROWS
    assert of_several[0] == pytest.approx(np.sqrt(mean), rel=1e-3)


def test_many_features_have_fewer_patterns() -> None:
    rows = np.random.default_rng(0).normal(size=(300, 128)).astype(np.float32)
    patterns = fit_several([rows], LIVE_ROWS)
    assert patterns is not None
    assert patterns.shape == (32, 5, 128)


@of_both
def test_stretches_are_spread_evenly_over_many_short_series(case: Case) -> None:
    short = [np.full((LIVE_ROWS + 4, case.features), k, np.float32) for k in range(3000)]
    found = _stretches(short, LIVE_ROWS, 10)
    assert found is not None
    assert len(found) == 5000
    np.testing.assert_array_equal(found[:, 0, 0], [3 * i // 5 for i in range(5000)])


def test_a_model_of_very_many_features_or_few_validation_rows_has_no_patterns() -> None:
    trained = SEVERAL.x(1500, seed=1)
    assert not with_patterns(KNOWN, [trained], [trained[: WHOLE_ROWS - 1]]).patterns
    assert with_patterns(KNOWN, [trained], [trained[:WHOLE_ROWS]]).pattern_weight == 1
    many = replace(KNOWN, next=[[0.0] * 21] * (MOST_FEATURES + 1))
    assert not with_patterns(many, [trained], [trained]).patterns
