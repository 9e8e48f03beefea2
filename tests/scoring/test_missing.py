"""Missing values, filled block by block."""

from typing import get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from at_infer.config import Fill
from at_infer.scoring.missing import Filler

NAN, INF = float("nan"), float("inf")
MEAN = [10.0, -20.0]

series = arrays(
    np.float32,
    st.tuples(st.integers(0, 30), st.just(2)),
    elements=st.sampled_from([NAN, 1, 2, INF]),
    fill=st.nothing(),  # every element on its own
)


def filled(fill: Fill, rows: np.ndarray, pieces: list[int]) -> np.ndarray:
    """The rows, given to one filler in blocks of so many rows."""
    rows, filler = rows.copy(), Filler(fill, MEAN)
    for block in np.split(rows, np.cumsum(pieces)):
        filler.apply(block)
    return rows


def brute_force(fill: Fill, rows: np.ndarray) -> np.ndarray:
    found = rows.copy()
    for j in range(rows.shape[1]):
        last = MEAN[j]
        for i in range(len(rows)):
            if np.isnan(found[i, j]) and fill != "error":
                found[i, j] = last if fill == "forward" else MEAN[j]
            last = found[i, j]
    return found


@given(fill=st.sampled_from(get_args(Fill)), rows=series, pieces=st.lists(st.integers(0, 9), max_size=8))
def test_gaps_are_filled_by_the_policy_whatever_the_blocks(fill: Fill, rows: np.ndarray, pieces: list[int]) -> None:
    np.testing.assert_array_equal(filled(fill, rows, pieces), brute_force(fill, rows))


def test_forward_repeats_the_last_value_across_blocks_and_starts_with_the_mean() -> None:
    rows = np.array([[NAN, 1], [5, NAN], [NAN, NAN], [NAN, 2]], np.float32)
    assert filled("forward", rows, [2, 1]).tolist() == [[10, 1], [5, 1], [5, 1], [5, 2]]


def test_a_filler_of_another_series_knows_nothing_of_the_first() -> None:
    Filler("forward", MEAN).apply(np.array([[5, 5]], np.float32))
    gap = np.array([[NAN, NAN]], np.float32)
    Filler("forward", MEAN).apply(gap)
    assert gap.tolist() == [MEAN]


@pytest.mark.parametrize("fill", get_args(Fill))
def test_a_series_without_any_value_gets_the_mean_or_stays_empty(fill: Fill) -> None:
    rows = np.full((3, 2), NAN, np.float32)
    expected = rows if fill == "error" else np.array([MEAN] * 3)
    np.testing.assert_array_equal(filled(fill, rows, [1]), expected)
