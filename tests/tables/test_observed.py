"""How long rows were watched."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from at_infer.tables import observed
from at_infer.tables.observed import ObservedTime

MINUTE = 60_000.0


def days(*series: np.ndarray) -> float | None:
    clock = ObservedTime()
    for times in series:
        clock.start_series()
        clock.add(times)
    return clock.days


def test_each_row_counts_for_a_step() -> None:
    assert days(np.arange(1440) * MINUTE) == pytest.approx(1)


def test_series_side_by_side_add_up() -> None:
    assert days(*[np.arange(1440) * MINUTE] * 30) == pytest.approx(30)


def test_a_gap_is_not_watched() -> None:
    times = np.arange(1440) * MINUTE
    times[700:] += 30 * 1440 * MINUTE
    assert days(times) == pytest.approx(1)


def test_time_that_stands_still_is_no_clock() -> None:
    assert days(np.zeros(5)) is None
    assert days(np.zeros(1)) is None


@given(st.lists(st.integers(1, 50), max_size=5), st.integers(0, 3))
def test_pieces_do_not_matter(cuts: list[int], seed: int) -> None:
    times = np.cumsum(np.random.default_rng(seed).choice([1.0, 2.0, 50.0], 200)) * MINUTE
    whole, pieces, first = ObservedTime(), ObservedTime(), 0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(observed, "STEPS", 60)
        whole.add(times)
        for cut in [*cuts, len(times)]:
            pieces.add(times[first : first + cut])
            first += cut
        assert pieces.days == pytest.approx(whole.days)
