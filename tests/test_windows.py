"""Where windows start."""

from hypothesis import given
from hypothesis import strategies as st

from at_infer.windows import window_starts

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
