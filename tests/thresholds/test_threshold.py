"""Scores to thresholds."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from at_infer.errors import ConfigError, DataError
from at_infer.models.statistics import Threshold
from at_infer.thresholds.gap import gap_threshold
from at_infer.thresholds.quantiles import QUANTILE_LEVELS, ValidationScores, quantiles
from at_infer.thresholds.ratio import carried_threshold, quantile_threshold, ratio_threshold
from benchmarks.reproduce import paper

scores_of_any_kind = arrays(np.float32, st.integers(1, 200), elements=st.floats(0, 8, width=32).map(lambda x: round(x)))


@given(scores=scores_of_any_kind, percent=st.integers(0, 99))
@pytest.mark.slow
def test_the_threshold_is_the_smallest_score_that_at_most_the_ratio_exceeds(scores: np.ndarray, percent: int) -> None:
    ratio = percent / 100
    candidates = [t for t in scores if (scores > t).sum() / scores.size <= ratio]
    assert ratio_threshold(scores, ratio) == min(candidates)


def test_a_rounded_product_does_not_cost_a_point() -> None:
    assert ratio_threshold(np.arange(100, dtype=np.float32), 0.29) == 70  # 0.29 * 100 < 29 in floats
    assert ratio_threshold(np.arange(100, dtype=np.float32).reshape(4, 25), 0.01) == 98
    assert ratio_threshold(np.arange(100, dtype=np.float32), 0) == 99


@pytest.mark.parametrize("ratio", [-0.01, 1.0, 5, float("nan")])
def test_a_ratio_that_is_no_share_is_refused(ratio: float) -> None:
    with pytest.raises(ConfigError, match=r"0\.01 means one percent"):
        ratio_threshold(np.zeros(3, np.float32), ratio)


def test_no_scores_have_no_threshold() -> None:
    with pytest.raises(DataError, match="no scores"):
        ratio_threshold(np.zeros(0, np.float32), 0.1)


def test_quantile_levels_are_fine_near_the_top() -> None:
    levels = np.array(QUANTILE_LEVELS)
    assert (np.diff(levels) > 0).all()
    assert (levels[0], levels[-1]) == (0.0, 1.0)
    assert {0.5, 0.99, 0.995, 0.999, 0.9999} <= set(QUANTILE_LEVELS)
    assert np.diff(levels[levels >= 0.999]).max() < 2e-5
    assert len(levels) < 500


def test_quantiles_rise_from_the_least_to_the_greatest_score() -> None:
    scores = np.random.default_rng(0).exponential(size=(30, 100)).astype(np.float32)
    found = quantiles(scores)
    assert len(found) == len(QUANTILE_LEVELS)
    assert found == sorted(found)
    assert (found[0], found[-1]) == (scores.min(), scores.max())
    for level in (0.25, 0.99, 0.9995):
        below = (scores <= found[QUANTILE_LEVELS.index(level)]).mean()
        assert below == pytest.approx(level, abs=1 / scores.size)


# Thresholds from the quantiles that a model keeps


def kept(*scores: np.ndarray) -> tuple[list[float], list[float]]:
    return list(QUANTILE_LEVELS), quantiles(np.concatenate(scores).astype(np.float32))


@pytest.mark.parametrize("ratio", [0, 0.0003, 0.005, 0.05, 0.29, 0.99])
def test_kept_quantiles_give_the_threshold_of_any_ratio(ratio: float) -> None:
    scores = np.random.default_rng(0).exponential(size=40_000).astype(np.float32)
    found = quantile_threshold(*kept(scores), ratio)
    assert (scores > found).mean() == pytest.approx(ratio, abs=2e-3 * ratio + 1e-4)
    assert found == pytest.approx(ratio_threshold(scores, ratio), rel=0.02)


@pytest.mark.parametrize("ratio", [-0.01, 1.0, float("nan"), float("inf")])
def test_a_ratio_that_is_no_share_has_no_quantile(ratio: float) -> None:
    with pytest.raises(ConfigError, match=r"0\.01 means one percent"):
        quantile_threshold([0, 1], [0, 1], ratio)


def test_another_mode_gets_the_threshold_of_the_same_ratio() -> None:
    like = Threshold(value=7.0, method="ratio", ratio=0.25, validation_rows=10)
    assert carried_threshold(like, [0, 1], [0, 4]).value == 3
    with pytest.raises(ConfigError, match="cannot be carried"):
        carried_threshold(Threshold(value=1.0, method="fixed", ratio=None, validation_rows=10), [0, 1], [0, 4])


@given(scores=scores_of_any_kind.filter(lambda scores: len(scores) > 0), at=st.integers(0, 199))
@pytest.mark.slow
def test_kept_quantiles_count_equal_scores_as_the_scores_themselves_do(scores: np.ndarray, at: int) -> None:
    whole = ValidationScores.of_scores("scores", np.repeat(scores, 1000))
    kept = ValidationScores("quantiles", whole.rows, whole.levels, whole.values)
    threshold = float(scores[at % len(scores)])
    assert kept.share_above(threshold) == pytest.approx(whole.share_above(threshold), abs=0.011)


@pytest.mark.parametrize("dataset", paper.INTERVALS)
def test_the_gap_statistic_finds_the_two_clusters_that_the_paper_counted(dataset: str) -> None:
    delta, counts = paper.DELTA[dataset], paper.INTERVALS[dataset]
    assert sum(counts) == paper.ROWS[dataset][1]
    edges = [0.0, delta / 10, delta, 10 * delta]
    middles = [np.full(count, (low + high) / 2) for count, low, high in zip(counts, edges, edges[1:], strict=False)]
    printed = {"smd": 0.0053, "msl": 0.0102, "swat": 0.0014, "smap": 0.0112, "psm": 0.0101}[dataset]
    found = gap_threshold(*kept(*middles))
    assert delta < found < 5.5 * delta
    assert np.mean(np.concatenate(middles) > found) == pytest.approx(printed, abs=1e-4)
    for seed in range(5):  # scores anywhere in their intervals: the middle moves into the upper one
        rng = np.random.default_rng(seed)
        drawn = [rng.uniform(low, high, count) for count, low, high in zip(counts, edges, edges[1:], strict=False)]
        found = gap_threshold(*kept(*drawn))
        assert printed / 2 < np.mean(np.concatenate(drawn) > found) <= printed + 1e-4


@pytest.mark.parametrize("logarithmic", [False, True])
@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e4])
@pytest.mark.parametrize("share", [0.2, 0.5, 0.8])
def test_the_gap_statistic_finds_the_middle_between_two_clusters(scale: float, share: float, logarithmic: bool) -> None:
    rng = np.random.default_rng(0)
    low, high = rng.normal(1, 0.1, int(20_000 * (1 - share))), rng.normal(6, 0.1, int(20_000 * share))
    low, high = (scale * (10**part if logarithmic else part) for part in (low, high))
    found = gap_threshold(*kept(low, high), logarithmic=logarithmic)
    assert low.max() < found < high.min()


def test_scores_that_underflow_are_one_cluster_and_a_few_others_another() -> None:
    zeros, tiny, some = np.zeros(5000), np.full(5000, 1e-30), np.linspace(0.5, 2, 100)
    assert 1e-12 < gap_threshold(*kept(zeros, tiny, some), logarithmic=True) < 0.5
    assert 1e-12 < gap_threshold(*kept(zeros, tiny, some)) < 1


@pytest.mark.parametrize("logarithmic", [False, True])
@pytest.mark.parametrize("kind", ["lognormal", "exponential", "chisquare", "uniform", "nearly equal"])
def test_one_cluster_has_no_gap(kind: str, logarithmic: bool) -> None:
    rng = np.random.default_rng(0)
    n = 20_000
    scores = {
        "lognormal": rng.lognormal(size=n),
        "exponential": rng.exponential(size=n),
        "chisquare": rng.chisquare(3, size=n),
        "uniform": rng.uniform(1, 2, size=n),
        "nearly equal": 0.1 + 1e-4 * rng.uniform(size=n),
    }[kind]
    with pytest.raises(ConfigError, match="do not form two clusters; give a ratio"):
        gap_threshold(*kept(scores), logarithmic=logarithmic)


def test_a_far_outlier_is_a_cluster_but_not_by_its_logarithm() -> None:
    scores = np.append(np.random.default_rng(0).lognormal(size=20_000), 1e9)
    assert 1e8 < gap_threshold(*kept(scores)) < 1e9
    with pytest.raises(ConfigError, match="do not form two clusters"):
        gap_threshold(*kept(scores), logarithmic=True)


@pytest.mark.parametrize("value", [0.0, 1e-20, 0.1, 1e6])
def test_constant_scores_have_no_gap(value: float) -> None:
    with pytest.raises(ConfigError, match="all validation scores are equal"):
        gap_threshold(*kept(np.full(100, value)))
