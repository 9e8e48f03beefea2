"""Where windows start, which window scores a row, and the moving mean over rows."""

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from at_infer.errors import ConfigError
from at_infer.scoring.windows import FirstWindow, LastOfWindow, MeanOfWindows, Merger, MovingMean, window_starts
from at_infer.scoring.windows import WindowLayout as Layout

sizes = {"rows": st.integers(0, 60), "window": st.integers(1, 20), "stride": st.integers(1, 25)}


def test_windows_lie_side_by_side_and_the_tail_is_left_over() -> None:
    assert window_starts(25, 10, 10, cover_tail=False).tolist() == [0, 10]
    assert window_starts(25, 10, 10, cover_tail=True).tolist() == [0, 10, 15]
    assert window_starts(30, 10, 10, cover_tail=True).tolist() == [0, 10, 20]
    assert window_starts(25, 10, 4, cover_tail=False).tolist() == [0, 4, 8, 12]


def test_a_series_shorter_than_a_window_has_none() -> None:
    assert window_starts(9, 10, 1, cover_tail=True).tolist() == []
    assert window_starts(0, 10, 1, cover_tail=True).tolist() == []
    assert window_starts(10, 10, 3, cover_tail=True).tolist() == [0]


@given(**sizes)
def test_every_window_lies_within_the_rows_and_starts_on_the_stride(rows: int, window: int, stride: int) -> None:
    starts = window_starts(rows, window, stride, cover_tail=False).tolist()
    assert starts == [start for start in range(0, rows, stride) if start + window <= rows]


@given(**sizes)
def test_covering_the_tail_adds_at_most_one_window_that_ends_with_the_rows(rows: int, window: int, stride: int) -> None:
    plain = window_starts(rows, window, stride, cover_tail=False).tolist()
    covering = window_starts(rows, window, stride, cover_tail=True)
    assert covering.dtype == "int64"
    if rows < window:
        assert covering.tolist() == []
        return
    assert covering[-1] + window == rows
    assert covering.tolist() in (plain, [*plain, rows - window])
    if stride <= window:
        covered = {row for start in covering for row in range(start, start + window)}
        assert covered == set(range(rows))


# From windows to rows


def merged(merger: Merger, *batches: tuple[Sequence[int], Sequence[Sequence[float]]]) -> list[list[float]]:
    """What comes out after each batch of (starts, scores of the windows), and at the end."""
    found = []
    for starts, scores in batches:
        found.append(merger.add(np.array(starts), np.array(scores, np.float32)[..., None])[:, 0].tolist())
    ended = max(starts) + len(scores[0])
    return [*found, merger.end(ended)[:, 0].tolist()]


NAN = float("nan")


def test_the_first_window_that_covers_a_row_scores_it() -> None:
    side_by_side = ([0, 3], [[1, 2, 3], [4, 5, 6]])
    tail = ([4], [[7, 8, 9]])
    assert merged(FirstWindow(1), side_by_side, tail) == [[1, 2, 3, 4, 5, 6], [9], []]
    assert merged(FirstWindow(1), ([0, 3, 4], [[1, 2, 3], [4, 5, 6], [7, 8, 9]])) == [[1, 2, 3, 4, 5, 6, 9], []]
    assert merged(FirstWindow(1), ([0, 1], [[1, 2, 3], [4, 5, 6]])) == [[1, 2, 3, 6], []]


def test_overlapping_windows_are_averaged_and_a_row_waits_for_its_last_window() -> None:
    found = merged(MeanOfWindows(1), ([0, 2], [[1, 1, 1, 1], [3, 3, 3, 3]]), ([4], [[9, 9, 9, 9]]))
    assert found == [[1, 1, 2], [2, 6], [6, 9, 9]]


def test_a_window_without_scores_has_no_say_in_the_mean() -> None:
    nothing = [NAN, NAN, NAN]
    found = merged(MeanOfWindows(1), ([0], [[1, 2, 3]]), ([1], [nothing]), ([2, 3], [[5, 6, 7], nothing]))
    np.testing.assert_equal(found, [[1], [2], [4, 6], [7, NAN]])


def test_the_last_row_of_each_window_is_scored_and_the_first_rows_are_not() -> None:
    found = merged(LastOfWindow(3, 0, 1), ([0], [[1, 2, 3]]), ([1, 2], [[4, 5, 6], [7, 8, 9]]))
    np.testing.assert_equal(found, [[NAN, NAN, 3], [6, 9], []])


@pytest.mark.parametrize("channels", [1, 4])
@pytest.mark.parametrize("merger", [FirstWindow, MeanOfWindows, lambda channels: LastOfWindow(3, 1, channels)])
def test_every_channel_is_merged(merger: type[FirstWindow], channels: int) -> None:
    scores = np.arange(2 * 3 * channels, dtype=np.float32).reshape(2, 3, channels)
    one = merger(channels)
    rows = np.concatenate([one.add(np.array([0, 1]), scores), one.end(4)])
    for channel in range(channels):
        alone = merger(1)
        parts = [alone.add(np.array([0, 1]), scores[..., channel : channel + 1]), alone.end(4)]
        np.testing.assert_array_equal(rows[:, channel], np.concatenate(parts)[:, 0])


@pytest.mark.parametrize("stride", [-1, 0, 11])
def test_a_stride_that_leaves_out_rows_or_stands_still_is_refused(stride: int) -> None:
    with pytest.raises(ConfigError, match="is not between 1 and the window's length, 10"):
        Layout(window=10, stride=stride)


def test_rows_between_the_ends_of_windows_and_before_the_first_have_no_score() -> None:
    merger = LastOfWindow(3, 0, 1)
    assert np.isnan(merger.until(2)).tolist() == [[True], [True]]
    assert merged(merger, ([0, 2], [[1, 2, 3], [4, 5, 6]]))[0][::2] == [3, 6]


def test_with_a_delay_a_row_is_scored_by_a_later_window_and_the_last_rows_by_the_last() -> None:
    found = merged(LastOfWindow(3, 1, 1), ([0], [[1, 2, 3]]), ([1, 2], [[4, 5, 6], [7, 8, 9]]))
    np.testing.assert_equal(found, [[NAN, 2], [5, 8], [9]])


def test_a_delay_goes_with_rows_that_are_scored_one_by_one_and_within_a_window() -> None:
    with pytest.raises(ConfigError, match="delay: a delay needs rows that are scored one by one"):
        Layout(window=10, stride=10, delay=1)
    with pytest.raises(ConfigError, match="delay: 10 is not between 0"):
        Layout(window=10, stride=1, align="last", delay=10)


def test_an_alignment_that_does_not_exist_is_refused() -> None:
    with pytest.raises(ConfigError, match="align"):
        Layout(window=10, stride=10, align="first")  # type: ignore[arg-type]


def test_the_rule_is_told_in_words() -> None:
    assert "do not overlap" in Layout(window=10, stride=10).rule
    assert "start every 3 rows" in Layout(window=10, stride=3).rule
    assert "first 9 rows" in Layout(window=10, stride=1, align="last").rule
    assert "ends 2 rows behind it" in Layout(window=10, stride=1, align="last", delay=2).rule


# The moving mean


def mean_of(scores: Sequence[float], width: int, *, causal: bool = False, piece: int = 100) -> list[float]:
    mean = MovingMean(width, causal=causal)
    rows = np.array(scores, np.float32)[:, None]
    parts = [mean.add(rows[at : at + piece]) for at in range(0, len(rows), piece)]
    found = np.concatenate([np.empty((0, 1), np.float32), *parts, mean.end()])
    assert found.dtype == np.float32
    return found[:, 0].tolist()


def test_the_mean_is_centred_and_takes_what_exists_at_the_ends() -> None:
    assert mean_of([0, 3, 6, 9], 3) == [1.5, 3, 6, 7.5]


def test_an_even_width_takes_one_row_more_from_the_past() -> None:
    assert mean_of([0, 4, 8, 4], 2) == [0, 2, 6, 6]
    assert mean_of([0, 3, 6, 9, 12], 4) == [1.5, 3, 4.5, 7.5, 9]


def test_a_causal_mean_never_looks_ahead() -> None:
    assert mean_of([0, 3, 6, 9], 3, causal=True) == [0, 1.5, 3, 6]
    assert mean_of([0, 4, 8], 2, causal=True) == [0, 2, 6]


def test_a_width_of_one_changes_nothing_and_one_beyond_the_series_takes_all_of_it() -> None:
    assert mean_of([1, 5, 3], 1) == [1, 5, 3]
    assert mean_of([1, 5, 3], 10**12) == [3, 3, 3]
    assert mean_of([1, 5, 3], 10**12, piece=1) == [3, 3, 3]
    assert mean_of([1, 5, 3], 1000, causal=True) == [1, 3, 3]
    assert mean_of([7], 4) == [7]
    assert mean_of([], 4) == []


def test_rows_without_a_score_stay_so_and_count_for_nobody() -> None:
    np.testing.assert_equal(mean_of([NAN, 2, NAN, 4, NAN], 3), [NAN, 2, NAN, 4, NAN])
    np.testing.assert_equal(mean_of([1, NAN, NAN, NAN, 3], 3, causal=True), [1, NAN, NAN, NAN, 3])
    np.testing.assert_equal(mean_of([NAN, NAN], 3), [NAN, NAN])


def test_only_the_score_is_smoothed_not_what_stands_beside_it() -> None:
    mean = MovingMean(3, causal=False)
    rows = np.array([[0, 1], [3, 2], [6, 3]], np.float32)
    found = np.concatenate([mean.add(rows[:1]), mean.add(rows[1:]), mean.end()])
    assert found.tolist() == [[1.5, 1], [3, 2], [4.5, 3]]


@given(
    scores=st.lists(st.one_of(st.just(NAN), st.floats(0, 100, width=32)), max_size=40),
    width=st.integers(1, 50),
    causal=st.booleans(),
    piece=st.integers(1, 12),
)
def test_the_mean_is_the_same_to_the_last_bit_in_any_pieces(
    scores: list[float], width: int, causal: bool, piece: int
) -> None:
    whole = mean_of(scores, width, causal=causal)
    np.testing.assert_array_equal(mean_of(scores, width, causal=causal, piece=piece), whole)
    before = width - 1 if causal else width // 2
    expected = [
        np.nanmean(scores[max(0, i - before) : i + width - before]) if not np.isnan(score) else NAN
        for i, score in enumerate(scores)
    ]
    np.testing.assert_allclose(whole, expected, rtol=1e-6)
