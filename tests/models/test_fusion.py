"""Mode fusion against brute force: loops over rows, float64, and the formulas of docs/method.md."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from at_infer.config import Level, ScoreConfig
from at_infer.errors import ConfigError
from at_infer.models.fusion import LABELS, Fusion, lookahead, lookback
from at_infer.models.fusion_together import Together
from at_infer.models.row_sums import additions, window_sums
from at_infer.models.statistics import ViewScale, ViewStatistics
from at_infer.models.view_units import measure_views
from at_infer.models.views import (
    ACTIVITY,
    AHEAD,
    FLOOR,
    NEXT,
    SHAPE_ROWS,
    VIEWS,
    MovingMeans,
    RecentLevel,
    SeriesViews,
)
from training.linear import fit_linear

F = 3
SCORE = ScoreConfig()


def series(rows: int, seed: int = 0) -> np.ndarray:
    """Scaled values, residuals and shapes (n,3F) of something like a network."""
    rng = np.random.default_rng(seed)
    x = np.sin(np.arange(rows)[:, None] / (5, 9, 14)) + 0.2 * rng.normal(size=(rows, F))
    residual = 0.1 * rng.normal(size=(rows, F)) + 0.05 * np.cumsum(rng.normal(size=(rows, F)), axis=0) / 10
    return np.concatenate([x, residual, residual - residual.mean(axis=0)], axis=1).astype(np.float32)


def box(values: np.ndarray, row: int, before: int, after: int) -> np.ndarray:
    return values[max(0, row - before) : row + after + 1].mean(axis=0)


def linear_errors(x: np.ndarray, lags: range, coefficients: np.ndarray, usual: np.ndarray) -> np.ndarray:
    found = np.tile(usual, (len(x), 1)).astype(np.float64)  # of rows with too few before them
    for row in range(max(lags), len(x)):
        seen = np.stack([x[row - lag] for lag in lags], axis=1)  # (F,p)
        found[row] = x[row] - (seen * coefficients[:, :-1]).sum(axis=1) - coefficients[:, -1]
    return found


def recent_level(residual: np.ndarray) -> np.ndarray:
    level = np.empty(residual.shape)
    for row in range(len(residual)):
        block = row // 20 * 20
        kept = list(range(0, block - 25 + 1, 20))[-50:]
        level[row] = np.median(residual[kept] if len(kept) >= 5 else residual[: row + 1], axis=0)
    return level


def signed_views(rows: np.ndarray, known: ViewStatistics, *, causal: bool) -> dict[str, np.ndarray]:
    scale = known.live if causal else known.whole
    x, residual, shape = np.split(rows.astype(np.float64), 3, axis=1)
    if causal and known.live_shape == "past":
        shape = residual - np.stack([box(residual, row, SHAPE_ROWS, 0) for row in range(len(residual))])
    found = {"shape": shape, "level": residual - recent_level(residual)}
    for name, lags, coefficients in (("next", NEXT, known.next), ("ahead", AHEAD, known.ahead)):
        errors = linear_errors(x, lags, np.asarray(coefficients), np.asarray(scale.spread[name]))
        after = 0 if causal else ACTIVITY - 1 - ACTIVITY // 2
        activity = [np.log(box(errors**2, row, ACTIVITY // 2, after) + FLOOR) for row in range(len(x))]
        found |= {name: errors, f"activity {name}": np.stack(activity)}
    return found


def brute_force(rows: np.ndarray, known: ViewStatistics, *, causal: bool, delay: int = 0) -> np.ndarray:
    scale = known.live if causal else known.whole
    views = signed_views(rows, known, causal=causal)
    logs, weights = [], []
    for name in VIEWS:
        squares = ((views[name] - np.asarray(scale.centre.get(name, 0.0))) / np.asarray(scale.spread[name])) ** 2
        for width in known.widths:
            after = min(delay, (width - 1) // 2) if causal else (width - 1) // 2
            roots = np.stack([np.sqrt(box(squares, row, width // 2, after)) for row in range(len(rows))])
            logs.append(np.log((roots.mean(axis=1) + known.part_floor) / (1 + known.part_floor)))
            weights.append(known.network_weight if name in ("shape", "level") else 1)
    return np.exp(np.average(logs, axis=0, weights=weights)) / scale.unit


def statistics(rows: np.ndarray) -> ViewStatistics:
    x, residual, shape = np.split(rows, 3, axis=1)
    predictions = [(fit_linear([x], lags), np.full(F, 0.2, np.float32)) for lags in (NEXT, AHEAD)]
    scales = [
        measure_views(
            SeriesViews(predictions, causal=causal, level="recent", number=0, past_shape=causal).add(
                x.T, residual.T, shape.T, end=True
            ),
            residual.T,
        )
        for causal in (False, True)
    ]
    return ViewStatistics(
        next=predictions[0][0].tolist(),
        ahead=predictions[1][0].tolist(),
        whole=scales[0],
        live=scales[1],
        network_weight=1.5,
        widths=[5, 10, 25, 50],
        part_floor=0.1,
    )


KNOWN = statistics(series(1500, seed=1))


def whole(rows: np.ndarray, **options: Any) -> np.ndarray:
    fusion = Fusion(KNOWN, options.pop("score", SCORE), **{"causal": False} | options)
    return np.concatenate([fusion.add(rows), fusion.end()])


@pytest.mark.parametrize(("causal", "delay"), [(False, 0), (True, 0), (True, 1), (True, 10), (True, 40)])
@pytest.mark.parametrize("rows", [1, 30, 400, 1400])
def test_scores_equal_brute_force(rows: int, causal: bool, delay: int) -> None:
    given = series(rows)
    found = whole(given, causal=causal, delay=delay)[:, 0]
    np.testing.assert_allclose(found, brute_force(given, KNOWN, causal=causal, delay=delay), rtol=2e-5)


@pytest.mark.parametrize(("causal", "delay"), [(False, 0), (True, 0), (True, 127)])
@pytest.mark.parametrize("widths", [[1], [25, 50], [10, 25, 50, 100, 150], [256, 2]])
def test_every_view_is_averaged_over_the_widths_of_the_model(widths: list[int], causal: bool, delay: int) -> None:
    given, known = series(400), replace(KNOWN, widths=widths)
    fusion = Fusion(known, SCORE, causal=causal, delay=delay)
    found = np.concatenate([fusion.add(given), fusion.end()])[:, 0]
    np.testing.assert_allclose(found, brute_force(given, known, causal=causal, delay=delay), rtol=2e-5)


@pytest.mark.parametrize("widths", [[], [0], [-3, 25], [257], [1] * 9])
def test_widths_that_no_training_gives_are_refused(widths: list[int]) -> None:
    with pytest.raises(ConfigError, match=r"widths: .* rows"):
        replace(KNOWN, widths=widths)


def test_a_model_of_before_has_two_widths() -> None:
    known = ViewStatistics.from_dict({n: v for n, v in KNOWN.to_dict().items() if n != "widths"})
    assert known == replace(KNOWN, widths=[25, 50])


def test_a_model_of_before_has_live_shapes_from_windows() -> None:
    given, known = series(400), ViewStatistics.from_dict(KNOWN.to_dict() | {"live_shape": "window"})
    fusion = Fusion(known, SCORE, causal=True)
    np.testing.assert_allclose(fusion.add(given)[:, 0], brute_force(given, known, causal=True), rtol=2e-5)
    assert ViewStatistics.from_dict({n: v for n, v in KNOWN.to_dict().items() if n != "live_shape"}) == known


def test_views_of_the_network_count_once_in_a_model_of_before() -> None:
    rows = series(400)
    known = ViewStatistics.from_dict({n: v for n, v in KNOWN.to_dict().items() if n != "network_weight"})
    assert known.network_weight == 1
    fusion = Fusion(known, SCORE, causal=False)
    found = np.concatenate([fusion.add(rows), fusion.end()])[:, 0]
    np.testing.assert_allclose(found, brute_force(rows, known, causal=False), rtol=2e-5)


def test_parts_of_a_model_of_before_have_hardly_a_floor() -> None:
    rows = series(400)
    known = ViewStatistics.from_dict({n: v for n, v in KNOWN.to_dict().items() if n != "part_floor"})
    assert known.part_floor == 1e-8
    fusion = Fusion(known, SCORE, causal=False)
    found = np.concatenate([fusion.add(rows), fusion.end()])[:, 0]
    np.testing.assert_allclose(found, brute_force(rows, known, causal=False), rtol=2e-5)


def test_a_view_that_stands_still_does_not_decide_the_score_alone() -> None:
    rows = series(600)
    rows[:, :F] = 0  # nothing to predict, and then a step of noise that is far below normal
    rows[300:, :F] += 1e-6 * np.random.default_rng(0).normal(size=(300, F)).astype(np.float32)
    flat = replace(
        KNOWN,
        next=np.zeros((F, 21)).tolist(),
        ahead=np.zeros((F, 21)).tolist(),
        network_weight=1e-3,
    )
    found = {}
    for floor in (1e-8, 0.1):
        fusion = Fusion(replace(flat, part_floor=floor), ScoreConfig(level="ignore"), causal=False)
        scores = np.concatenate([fusion.add(rows), fusion.end()])[:, 0]
        found[floor] = scores[400:500].mean() / scores[100:200].mean()
    assert found[1e-8] > 5
    assert found[0.1] == pytest.approx(1, abs=0.05)


@pytest.mark.parametrize("weight", [0, -1, 101, math.nan, math.inf])
@pytest.mark.parametrize("name", ["network_weight", "pattern_weight", "part_floor"])
def test_a_weight_or_floor_that_no_training_gives_is_refused(name: str, weight: float) -> None:
    with pytest.raises(ConfigError, match=f"{name}: .* is not a number in"):
        replace(KNOWN, **{name: weight})  # type: ignore[arg-type]


@given(
    sizes=st.lists(st.integers(1, 130), min_size=1, max_size=8),
    causal=st.booleans(),
    explain=st.booleans(),
    onset=st.booleans(),
)
@pytest.mark.slow
def test_scores_are_the_same_to_the_last_bit_in_any_pieces(
    sizes: list[int], causal: bool, explain: bool, onset: bool
) -> None:
    options = {"causal": causal, "explain": explain, "onset": onset}
    given, fusion, found, done = series(600), Fusion(KNOWN, SCORE, **options), [], 0
    for size in [*sizes, 600]:
        found.append(fusion.add(given[done : done + size]))
        done += size
    found.append(fusion.end())
    np.testing.assert_array_equal(np.concatenate(found), whole(given, **options))
    assert np.concatenate(found).shape[1] == fusion.channels


@pytest.mark.parametrize("explain", [False, True])
@pytest.mark.slow
def test_rows_of_many_features_score_the_same_one_by_one_as_together(explain: bool) -> None:
    times = 9  # numpy adds up eight numbers and more in another order than a few
    scale = replace(
        KNOWN.live,
        centre={name: times * values for name, values in KNOWN.live.centre.items()},
        spread={name: times * values for name, values in KNOWN.live.spread.items()},
    )
    known = ViewStatistics(next=times * KNOWN.next, ahead=times * KNOWN.ahead, whole=scale, live=scale)
    rows = np.concatenate([np.tile(part, times) for part in np.split(series(1300), 3, axis=1)], axis=1)
    one, all_ = (Fusion(known, SCORE, causal=True, explain=explain) for _ in range(2))
    found = np.concatenate([one.add(row[None]) for row in rows])
    np.testing.assert_array_equal(found, all_.add(rows))


@pytest.mark.parametrize("widths", [[1], [5, 10, 25, 50], [10, 25, 50, 100, 150]])
def test_single_rows_are_summed_up_over_any_number_of_rows(widths: list[int]) -> None:
    """A width and a delay may make a power of two: one sum that is there already."""
    rows, known = series(300), replace(KNOWN, widths=widths)
    for delay in range(76):
        one, all_ = (Fusion(known, SCORE, causal=True, delay=delay) for _ in range(2))
        steps = Together()
        np.testing.assert_array_equal(one.add(rows[:290]), all_.add(rows[:290]))
        found = [steps.add([one], [row[None]])[0] for row in rows[290:]]
        assert one.lent is not None
        np.testing.assert_array_equal(np.concatenate(found), all_.add(rows[290:]))


@pytest.mark.parametrize(
    ("delay", "level", "shape", "explain", "widths"),
    [
        (0, "recent", "past", False, [10, 25, 50, 100, 150]),
        (10, "recent", "past", False, [5, 10, 25, 50]),
        (30, "fixed", "past", False, [25, 50]),
        (1, "ignore", "window", False, [5, 10, 25, 50]),
        (0, "recent", "past", True, [5, 10, 25, 50]),
        (10, "ignore", "window", True, [10, 25, 50, 100, 150]),
        (3, "recent", "past", False, [25, 50]),
    ],
)
@pytest.mark.slow
def test_series_that_advance_together_score_as_each_by_itself(
    delay: int, level: Level, shape: str, explain: bool, widths: list[int]
) -> None:
    rows = [series(560, seed=seed)[seed:] for seed in range(5)]  # not all at the same row of a block
    known = ViewStatistics.from_dict(KNOWN.to_dict() | {"live_shape": shape, "widths": widths})
    score = replace(SCORE, level=level)
    together, alone = (
        [Fusion(known, score, causal=True, delay=delay, explain=explain) for _ in rows] for _ in range(2)
    )
    for fusions in (together, alone):
        for fusion, own in zip(fusions, rows, strict=True):
            fusion.add(own[:100])
    rows[3][200] = np.nan
    steps, at = Together(), 100
    for size in [1] * 200 + [2, 1, 9, 1, 1, 3, 16, 17, 33, 40, 70] + [1] * 50:
        found = steps.add(together, [own[at : at + size] for own in rows])
        expected = [fusion.add(own[at : at + size]) for fusion, own in zip(alone, rows, strict=True)]
        at += size
        for one, other in zip(found, expected, strict=True):
            np.testing.assert_array_equal(one, other)
        if at % 50 == 0:
            for name, value in together[0].remember().items():
                np.testing.assert_array_equal(value, alone[0].remember()[name])
    assert steps.steady is not None
    assert len(steps.steady.free) == 3
    del together[1:], found
    assert len(steps.steady.free) == 7, "series that are gone leave their places to others"


@pytest.mark.parametrize("causal", [False, True])
def test_no_row_further_away_than_said_changes_a_score(causal: bool) -> None:
    given = series(1700)
    expected = whole(given, causal=causal)
    first = 1500 - lookback(KNOWN.widths, "recent")
    first -= first % 20
    np.testing.assert_array_equal(whole(given[first:], causal=causal)[1500 - first :], expected[1500:])
    until = 1500 + lookahead(KNOWN.widths, causal=causal) + 1
    np.testing.assert_array_equal(whole(given[:until], causal=causal)[: 1500 + 1], expected[: 1500 + 1])


@pytest.mark.parametrize(("causal", "delay"), [(False, 0), (True, 10)])
def test_the_onset_is_a_score_that_depends_on_no_later_row(causal: bool, delay: int) -> None:
    given = series(700)
    found = whole(given, causal=causal, delay=delay, onset=True)
    np.testing.assert_array_equal(found[:, :1], whole(given, causal=causal, delay=delay))
    np.testing.assert_array_equal(whole(given[:400], causal=causal, delay=delay, onset=True)[:352, 1], found[:352, 1])
    spiked = given.copy()
    spiked[350, :F] += 30
    changed = np.flatnonzero(whole(spiked, causal=causal, delay=delay, onset=True)[:, 1] != found[:, 1])
    assert changed[0] == 350


def test_a_stream_goes_on_from_what_it_remembers() -> None:
    given = series(900)
    expected = whole(given, causal=True, delay=10)
    first, second = (Fusion(KNOWN, SCORE, causal=True, delay=10) for _ in range(2))
    before = first.add(given[:333])
    second.recall(first.remember())
    np.testing.assert_array_equal(np.concatenate([before, second.add(given[333:]), second.end()]), expected)


def test_rows_without_a_score_stay_so_and_what_follows_begins_anew() -> None:
    given = series(500)
    given[200:220] = np.nan
    found = whole(given)[:, 0]
    assert np.flatnonzero(np.isnan(found)).tolist() == list(range(200, 220))
    np.testing.assert_array_equal(found[:200], whole(given[:200])[:, 0])
    np.testing.assert_array_equal(found[220:], whole(given[220:])[:, 0])


def test_normal_rows_score_about_one_in_units_of_their_median() -> None:
    rows = series(1500, seed=1)
    assert np.median(whole(rows)) == pytest.approx(np.median(brute_force(rows, KNOWN, causal=False)), rel=1e-4)
    assert 0.5 < np.median(whole(rows)) < 1.5


@pytest.mark.parametrize("value", [0.0, 1e6, -1e6, 1e30])
def test_scores_of_constants_and_extremes_are_finite(value: float) -> None:
    given = series(200)
    given[100] = value
    assert np.isfinite(whole(given)).all()
    assert np.isfinite(whole(np.full_like(given, min(abs(value), 1e6)))).all()


# What each view finds


def fault(rows: np.ndarray, kind: str) -> np.ndarray:
    """One fault of the second feature in rows 600 to 700."""
    rows = rows.copy()
    x, residual, shape = (slice(k * F + 1, k * F + 2) for k in range(3))
    inside = slice(600, 700)
    if kind == "level":
        rows[inside, residual] += 3
    elif kind == "stuck":
        rows[inside, x] = 0  # where a stuck sensor is also easy to predict
    elif kind == "burst":
        rows[inside, x] += np.random.default_rng(5).normal(size=(100, 1)) * 2
    elif kind == "shape":
        rows[inside, shape] += np.random.default_rng(5).normal(size=(100, 1)) * 20
    return rows


@pytest.mark.parametrize("kind", ["level", "stuck", "burst", "shape"])
def test_the_cause_of_a_fault_is_named_by_feature_and_view(kind: str) -> None:
    rows = series(1000, seed=3)
    found = whole(fault(rows, kind), explain=True)
    assert found.shape == (1000, 1 + 2 * F)
    score, share, view = found[650, 0], found[650, 1 : 1 + F], found[650, 1 + F :]
    assert score > 1.2 * whole(rows)[650, 0]
    assert share.argmax() == 1
    assert LABELS[int(view[1])] == kind
    np.testing.assert_allclose(found[:, 1 : 1 + F].sum(axis=1), found[:, 0], rtol=1e-3)


def test_a_level_may_be_compared_with_the_training_data_or_not_at_all() -> None:
    rows = series(3000, seed=3)
    rows[1000:, F + 1] += 3  # a step that stays
    recent, fixed, ignored = (
        whole(rows, score=ScoreConfig(level=level))[:, 0] for level in ("recent", "fixed", "ignore")
    )
    assert recent[1200] > 1.3 * ignored[1200]
    assert fixed[2900] > 1.3 * recent[2900]
    np.testing.assert_allclose(np.median(recent[2700:2900]), np.median(recent[500:900]), rtol=0.15)


# The parts


@given(width=st.integers(1, 70), extra=st.integers(0, 50))
def test_sums_of_windows_are_those_of_a_loop(width: int, extra: int) -> None:
    values = np.random.default_rng(width).normal(size=(2, width + extra + 3)).astype(np.float32)
    expected = np.stack([values[:, i : i + width].sum(axis=1, dtype=np.float64) for i in range(extra + 4)], axis=1)
    found, later = window_sums(values, [(0, width), (3, width)], extra + 1)
    np.testing.assert_allclose(found, expected[:, :-3], rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(later, expected[:, 3:], rtol=1e-4, atol=1e-4)


def test_sums_in_pieces_are_those_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    values = np.random.default_rng(0).normal(size=(2, 3, 149)).astype(np.float32)
    spans = [(0, 50), (45, 5), (49, 1), (12, 25)]
    whole = window_sums(values, spans, 100)
    for piece in (1, 7, 100, 892):
        monkeypatch.setattr("at_infer.models.row_sums.PIECE", piece)
        np.testing.assert_array_equal(window_sums(values, spans, 100), whole)


@given(widths=st.lists(st.integers(1, 256), min_size=1, max_size=8))
def test_sums_are_made_of_others_that_come_before_them(widths: list[int]) -> None:
    known = {1}
    for width, older, newer in additions(frozenset(widths)):
        assert older + newer == width
        assert {older, newer} <= known
        known.add(width)
    assert set(widths) <= known


def test_the_widths_of_the_default_score_take_few_additions() -> None:
    formed = [[width for width, _, _ in additions(frozenset(widths))] for widths in ([5, 10, 25, 50], [3, 6, 13, 26])]
    assert formed == [[2, 4, 5, 10, 20, 25, 50], [2, 3, 6, 12, 13, 26]]


def test_a_huge_value_leaves_no_trace_in_the_means_behind_it() -> None:
    rows = np.ones((1, 100), np.float32)
    rows[:, 10] = 1e30
    (found,) = MovingMeans([(5, 4)]).add(rows, end=True)
    np.testing.assert_array_equal(found[:, 16:], 1)


def test_the_recent_level_forgets_a_step_late_and_at_once() -> None:
    rows = np.zeros((2000, 1), np.float32)
    rows[1000:] = 1
    level = RecentLevel(0, 1).of(rows.T)[0]
    assert set(np.unique(level).tolist()) <= {0.0, 0.5, 1.0}
    assert level[1400] == 0
    assert level[1600] == 1


def test_linear_predictions_are_those_of_a_ridge_regression() -> None:
    from sklearn.linear_model import Ridge

    x = series(400)[:, :F]
    for lags in (NEXT, AHEAD):
        found = fit_linear([x], lags, ridge=1e-2)
        for j in range(F):
            known = np.stack([x[max(lags) - lag : len(x) - lag, j] for lag in lags], axis=1)
            expected = Ridge(alpha=1e-2 * len(known)).fit(known, x[max(lags) :, j])
            np.testing.assert_allclose(found[j, :-1], expected.coef_, atol=1e-4)
            np.testing.assert_allclose(found[j, -1], expected.intercept_, atol=1e-4)


def test_statistics_survive_json() -> None:
    assert ViewStatistics.from_dict(KNOWN.to_dict()) == KNOWN
    assert isinstance(KNOWN.whole, ViewScale)
