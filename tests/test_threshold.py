"""Scores to thresholds."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from at_infer.errors import ConfigError, DataError
from at_infer.threshold import QUANTILE_LEVELS, quantiles, ratio_threshold

scores_of_any_kind = arrays(np.float32, st.integers(1, 200), elements=st.floats(0, 8, width=32).map(lambda x: round(x)))


@given(scores=scores_of_any_kind, percent=st.integers(0, 99))
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
