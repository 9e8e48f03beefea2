"""Distances to normal patterns against brute force, in every way that rows come, and inside mode fusion."""

from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from at_infer.config import ScoreConfig
from at_infer.errors import ConfigError
from at_infer.models.fusion import LABELS, Fusion, lookahead, lookback
from at_infer.models.fusion_together import Together
from at_infer.models.patterns import (
    LEAST_HEIGHT,
    LIVE_ROWS,
    PATTERN_VIEWS,
    WHOLE_ROWS,
    NearestPattern,
    PatternDistances,
    decode,
    encode,
    measure_patterns,
)
from at_infer.models.statistics import ViewStatistics
from tests.models.test_fusion import KNOWN, SCORE, F, box, brute_force, series
from training.patterns import PATTERNS, fit_patterns


def distances(x: np.ndarray, patterns: np.ndarray) -> np.ndarray:
    """Of the stretch that ends with each row that has enough before it: (n,F,2)."""
    rows = patterns.shape[-1]
    stretches = np.stack([x[i : i + rows].T for i in range(len(x) - rows + 1)]).astype(np.float64)  # (n,F,R)
    level = stretches - stretches.mean(axis=-1, keepdims=True)
    form = level / np.maximum(level.std(axis=-1, keepdims=True), LEAST_HEIGHT)
    found = [
        ((rows[:, :, None] - patterns[None, :, kind]) ** 2).sum(axis=-1).min(axis=-1)
        for kind, rows in enumerate((level, form))
    ]
    return np.stack(found, axis=-1)


TRAINED = series(1500, seed=1)[:, :F]


def fitted(rows: int) -> tuple[NearestPattern, np.ndarray, dict[str, list[float]]]:
    patterns = fit_patterns([TRAINED], rows)
    assert patterns is not None
    nearest = NearestPattern(patterns)
    return nearest, patterns, measure_patterns(nearest, [TRAINED.T])


NEAREST, PATTERNS_OF_THREE, SPREAD = fitted(WHOLE_ROWS)
LIVE, LIVE_OF_THREE, LIVE_SPREAD = fitted(LIVE_ROWS)
WITH = replace(
    KNOWN,
    whole=replace(KNOWN.whole, spread=KNOWN.whole.spread | SPREAD),
    live=replace(KNOWN.live, spread=KNOWN.live.spread | LIVE_SPREAD),
    patterns=encode(PATTERNS_OF_THREE),
    live_patterns=encode(LIVE_OF_THREE),
    pattern_weight=2.5,
)


def scored(rows: np.ndarray, known: ViewStatistics = WITH, **options: Any) -> np.ndarray:
    fusion = Fusion(known, options.pop("score", SCORE), **{"causal": False} | options)
    return np.concatenate([fusion.add(rows), fusion.end()])


@pytest.mark.parametrize("rows", [50, 51, 66, 400])
def test_distances_equal_brute_force(rows: int) -> None:
    x = series(rows)[:, :F]
    x[30:] *= 3
    for nearest, patterns in ((NEAREST, PATTERNS_OF_THREE), (LIVE, LIVE_OF_THREE)):
        found = nearest.squared_distances(x.T).transpose(2, 0, 1)
        np.testing.assert_allclose(found, distances(x, patterns), rtol=1e-4, atol=1e-3)


def test_a_row_has_the_same_distance_whatever_comes_with_it() -> None:
    x = np.ascontiguousarray(series(300)[:, :F].T)
    expected = NEAREST.squared_distances(x)
    for first in range(251):
        one = NEAREST.squared_distances(x[:, first : first + WHOLE_ROWS])
        np.testing.assert_array_equal(one[..., 0], expected[..., first])


@pytest.mark.parametrize("value", [0.0, 1.0, -1e6, 1e30, -3e38])
def test_distances_of_constants_and_extremes_are_finite(value: float) -> None:
    x = np.full((F, 120), value, np.float32)
    x[:, 60] = 5
    assert np.isfinite(NEAREST.squared_distances(x)).all()


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("rows", [1, 23, 24, 25, 49, 50, 75, 300])
def test_in_whole_windows_a_row_is_in_the_middle_of_its_stretch_and_live_it_is_the_last(
    rows: int, causal: bool
) -> None:
    x = series(rows)[:, :F]
    unit = np.full((F, 2), 2, np.float32)
    whole = PatternDistances(NEAREST, unit, causal=causal)
    expected = np.ones((F, 2, rows), np.float32)
    if rows >= WHOLE_ROWS:
        known = NEAREST.squared_distances(np.ascontiguousarray(x.T)) / 4
        first = WHOLE_ROWS - 1 if causal else WHOLE_ROWS // 2
        expected[..., first : first + known.shape[-1]] = known
        expected[..., first + known.shape[-1] :] = known[..., -1:]
    np.testing.assert_array_equal(whole.add(x.T, end=True), expected)
    pieces = PatternDistances(NEAREST, unit, causal=causal)
    cuts = sorted({0, *np.random.default_rng(rows).integers(0, rows + 1, 6).tolist(), rows})
    found = [pieces.add(x[first:end].T) for first, end in pairwise(cuts)]
    found.append(pieces.add(np.empty((F, 0), np.float32), end=True))
    np.testing.assert_array_equal(np.concatenate(found, axis=-1), expected)


@pytest.mark.parametrize(("causal", "delay"), [(False, 0), (True, 0), (True, 10)])
def test_scores_are_the_weighted_mean_of_the_other_views_and_of_both_distances(causal: bool, delay: int) -> None:
    rows = series(400)
    scale = WITH.live if causal else WITH.whole
    unit = np.array([scale.spread[view] for view in PATTERN_VIEWS], np.float32).T
    nearest = LIVE if causal else NEAREST
    squares = PatternDistances(nearest, unit, causal=causal).add(rows[:, :F].T, end=True).transpose(2, 0, 1)
    logs = []
    for kind in range(len(PATTERN_VIEWS)):
        for width in WITH.widths:
            after = min(delay, (width - 1) // 2) if causal else (width - 1) // 2
            roots = [np.sqrt(box(squares[..., kind].astype(float), row, width // 2, after)) for row in range(len(rows))]
            logs.append(np.log(np.mean(roots, axis=1) + 1e-8))
    others = 4 + 2 * WITH.network_weight
    of_patterns = 2 * WITH.pattern_weight
    known = np.log(brute_force(rows, KNOWN, causal=causal, delay=delay) * scale.unit) * others
    expected = np.exp((known + np.mean(logs, axis=0) * of_patterns) / (others + of_patterns)) / scale.unit
    np.testing.assert_allclose(scored(rows, causal=causal, delay=delay)[:, 0], expected, rtol=1e-4)


@pytest.mark.parametrize("options", [{}, {"explain": True}, {"onset": True}, {"causal": True, "explain": True}])
def test_scores_in_pieces_are_those_at_once(options: dict[str, Any]) -> None:
    rows, fusion, found = series(700), Fusion(WITH, SCORE, **{"causal": False} | options), []
    for first, end in pairwise([0, 1, 2, 60, 61, 333, 700]):
        found.append(fusion.add(rows[first:end]))
    found.append(fusion.end())
    np.testing.assert_array_equal(np.concatenate(found), scored(rows, **options))


def test_live_rows_of_several_series_and_what_they_remember_equal_one_stream() -> None:
    rows = series(500)
    first, second, together = (Fusion(WITH, SCORE, causal=True, delay=3) for _ in range(3))
    expected = scored(rows, causal=True, delay=3)
    before = first.add(rows[:333])
    second.recall(first.remember())
    np.testing.assert_array_equal(np.concatenate([before, second.add(rows[333:]), second.end()]), expected)
    steps = Together()
    found = [steps.add([together], [rows[i : i + 1]])[0] for i in range(500)]
    assert steps.steady is not None
    np.testing.assert_array_equal(np.concatenate([*found, together.end()]), expected)


@pytest.mark.parametrize("explain", [False, True])
@pytest.mark.slow
def test_series_that_advance_together_score_as_each_by_itself(explain: bool) -> None:
    rows = [series(560, seed=seed)[seed:] for seed in range(5)]
    together, alone = ([Fusion(WITH, SCORE, causal=True, delay=3, explain=explain) for _ in rows] for _ in range(2))
    steps, at = Together(), 0
    for size in [200, *[1] * 60, 2, 1, 9, 16, 40, 1, 3, *[1] * 100, 65, 20]:
        found = steps.add(together, [own[at : at + size] for own in rows])
        expected = [fusion.add(own[at : at + size]) for fusion, own in zip(alone, rows, strict=True)]
        at += size
        for one, other in zip(found, expected, strict=True):
            np.testing.assert_array_equal(one, other)
    for name, value in together[0].remember().items():
        np.testing.assert_array_equal(value, alone[0].remember()[name])


@pytest.mark.parametrize("causal", [False, True])
def test_no_row_further_away_than_said_changes_a_score(causal: bool) -> None:
    rows = series(1700)
    expected = scored(rows, causal=causal)
    first = 1500 - lookback(WITH.widths, "recent")
    first -= first % 20
    np.testing.assert_array_equal(scored(rows[first:], causal=causal)[1500 - first :], expected[1500:])
    until = 1500 + lookahead(WITH.widths, causal=causal) + 1
    np.testing.assert_array_equal(scored(rows[:until], causal=causal)[:1501], expected[:1501])


def test_the_onset_counts_patterns_and_depends_on_no_later_row() -> None:
    rows = series(700)
    found = scored(rows, onset=True)
    spiked = rows.copy()
    spiked[350, :F] += 30
    changed = np.flatnonzero(scored(spiked, onset=True)[:, 1] != found[:, 1])
    assert changed[0] == 350
    np.testing.assert_array_equal(scored(rows[:400], onset=True)[:352, 1], found[:352, 1])
    assert (found[:, 1] != scored(rows, KNOWN, onset=True)[:, 1]).any()


@pytest.mark.parametrize("level", ["recent", "ignore"])
def test_an_unknown_pattern_is_named_as_the_cause(level: Any) -> None:
    rows = series(1000, seed=3)
    rows[600:700, 1] += 1.5 * np.sin(np.arange(600, 700) / 9)  # higher, which is as easy to predict
    found = scored(rows, explain=True, score=ScoreConfig(level=level))
    at = slice(620, 680)
    assert found[at, 0].mean() > 1.1 * scored(series(1000, seed=3))[at, 0].mean()
    assert (found[at, 1 : 1 + F].argmax(axis=1) == 1).mean() > 0.9
    named = {LABELS[int(view)] for view in found[at, 1 + F :][:, 1]}
    assert "pattern" in named
    assert named <= set(LABELS)


# Patterns as a text, and from training rows


def test_patterns_survive_as_text() -> None:
    np.testing.assert_array_equal(decode(encode(PATTERNS_OF_THREE), F, WHOLE_ROWS), PATTERNS_OF_THREE)
    assert ViewStatistics.from_dict(WITH.to_dict()) == WITH


@pytest.mark.parametrize(
    "text",
    [
        "?",
        "AAA",
        "AAAA",
        encode(np.full((F, 2, 3, WHOLE_ROWS), np.nan, np.float32)),
        encode(np.zeros((F, 2, 1025, 50))),
    ],
)
def test_texts_that_no_training_writes_are_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="patterns: are not"):
        decode(text, F, WHOLE_ROWS)


def test_a_model_of_before_has_none() -> None:
    known = ViewStatistics.from_dict({n: v for n, v in KNOWN.to_dict().items() if "pattern" not in n})
    assert known == KNOWN
    assert not known.patterns


def test_rows_like_those_of_training_are_near_and_others_are_not() -> None:
    patterns = fit_patterns([TRAINED[:, :1], TRAINED[:700, :1]], LIVE_ROWS)
    assert patterns is not None
    assert patterns.shape == (1, 2, PATTERNS, LIVE_ROWS)
    np.testing.assert_allclose(patterns.mean(axis=-1), 0, atol=1e-5)
    again = fit_patterns([TRAINED[:, :1], TRAINED[:700, :1]], LIVE_ROWS)
    np.testing.assert_array_equal(again, patterns)
    nearest = NearestPattern(patterns)
    known, other = (nearest.squared_distances(x.T) for x in (TRAINED[:, :1], TRAINED[::2, :1].copy()))
    assert (np.median(other, axis=-1) > 1.5 * np.median(known, axis=-1)).all()


def test_constant_rows_have_patterns_and_few_rows_have_none() -> None:
    patterns = fit_patterns([np.full((400, 1), 3, np.float32)], WHOLE_ROWS)
    assert patterns is not None
    np.testing.assert_array_equal(patterns, 0)
    assert fit_patterns([TRAINED[: PATTERNS + WHOLE_ROWS - 2]], WHOLE_ROWS) is None
    assert fit_patterns([TRAINED[:30], TRAINED[: PATTERNS + WHOLE_ROWS - 1]], WHOLE_ROWS) is not None
