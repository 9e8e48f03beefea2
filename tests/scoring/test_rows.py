"""Streamed scores against brute force: loops over series, windows and rows."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count, cycle
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from at_infer.errors import DataError, EngineError
from at_infer.scoring.rows import RowScorer
from at_infer.scoring.settings import RowSettings
from at_infer.scoring.windows import MovingMean
from at_infer.scoring.windows import WindowLayout as Layout

FEATURES = 2


def fingerprint(windows: np.ndarray) -> np.ndarray:
    """Three channels (B,N,3) that tell any two windows and any two steps of a window apart."""
    n = windows.shape[1]
    weights = np.arange(1, n * FEATURES + 1).reshape(n, FEATURES)
    of_window = (windows.astype(np.float64) * weights).sum(axis=(1, 2))[:, None] % 1009
    score = of_window + windows[..., 0] + np.arange(n) / 8
    return np.stack([score, windows[..., 0] * 2, windows[..., 1] + of_window], axis=-1).astype(np.float32)


@dataclass(frozen=True)
class Case:
    """Rows of some series, and how they are scored."""

    series: list[np.ndarray]
    bad: list[np.ndarray]
    layout: Layout
    smooth: int
    short_series: str
    channels: int
    batch_size: int

    @property
    def rows(self) -> int:
        return sum(map(len, self.series))

    def score(self, windows: np.ndarray) -> np.ndarray:
        return fingerprint(windows)[..., : self.channels]


@st.composite
def cases(draw: st.DrawFn) -> Case:
    window = draw(st.integers(1, 7))
    align = draw(st.sampled_from(["window", "last"]))
    stride = draw(st.integers(1, window))
    delay = draw(st.integers(0, window - 1)) if align == "last" else 0
    lengths = draw(st.lists(st.integers(0, 4 * window + 3), min_size=1, max_size=5))
    short = "skip" if align == "last" or 0 in lengths else draw(st.sampled_from(["skip", "pad"]))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    some_bad = draw(st.sampled_from([0.0, 0.05, 0.5]))
    return Case(
        series=[rng.integers(0, 1000, (length, FEATURES)).astype(np.float32) for length in lengths],
        bad=[rng.random(length) < some_bad for length in lengths],
        layout=Layout(window=window, stride=stride, align=align, delay=delay),  # type: ignore[arg-type]
        smooth=draw(st.integers(1, 9)),
        short_series=short,
        channels=draw(st.sampled_from([1, 3])),
        batch_size=draw(st.integers(1, 9)),
    )


def brute_force(case: Case) -> np.ndarray:
    found = [of_series(case, rows, bad) for rows, bad in zip(case.series, case.bad, strict=True)]
    return np.concatenate(found)


def of_series(case: Case, rows: np.ndarray, bad: np.ndarray) -> np.ndarray:
    n, length = case.layout.window, len(rows)
    result = np.full((length, case.channels), np.nan)
    if length < n:
        if case.short_series == "skip":
            return result
        padded = np.concatenate([rows[:1]] * (n - length) + [rows])
        if not bad.any():
            result = case.score(padded[None])[0, n - length :].astype(np.float64)
        return moving_mean(case, result)
    starts = list(range(0, length - n + 1, case.layout.stride))
    if case.layout.align == "window" and starts[-1] != length - n:
        starts.append(length - n)
    of_windows = {
        start: np.full((n, case.channels), np.nan)
        if bad[start : start + n].any()
        else case.score(rows[start : start + n][None])[0].astype(np.float64)
        for start in starts
    }
    for row in range(length):
        covering = [start for start in starts if start <= row < start + n]
        if case.layout.align == "last":
            last = max(starts)
            start, place = row - n + 1 + case.layout.delay, n - 1 - case.layout.delay
            opinions = [of_windows[start][place]] if start in of_windows else []
            if row > last + place and row >= length - case.layout.delay:  # nothing comes behind it to wait for
                opinions = [of_windows[last][row - last]] if row < last + n else []
        elif case.layout.stride == n:
            opinions = [of_windows[covering[0]][row - covering[0]]]
        else:
            opinions = [of_windows[start][row - start] for start in covering]
        opinions = [opinion for opinion in opinions if not np.isnan(opinion).any()]
        if opinions:
            result[row] = np.mean(opinions, axis=0)
    return moving_mean(case, result)


def moving_mean(case: Case, scores: np.ndarray) -> np.ndarray:
    before = case.smooth - 1 if case.layout.align == "last" else case.smooth // 2
    after = case.smooth - 1 - before
    result = scores.copy()
    for row in range(len(scores)):
        if not np.isnan(scores[row, 0]):
            result[row, 0] = np.nanmean(scores[max(0, row - before) : row + after + 1, 0])
    return result


def row_scorer(case: Case, score: Callable[[np.ndarray], np.ndarray] | None = None, **options: Any) -> RowScorer:
    skip_rows, counted = options.pop("skip_rows", 0), options.pop("counted", None)
    known: dict[str, Any] = {
        "layout": case.layout,
        "columns": ["a", "b"],
        "mean": [0.0, 0.0],
        "window_channels": case.channels,
        "channels": case.channels,
        "finish": lambda: MovingMean(case.smooth, causal=case.layout.align == "last"),
        "reach": (case.smooth, 0 if case.layout.align == "last" else case.smooth),
        "short_series": case.short_series,
        "on_bad_rows": "null" if any(bad.any() for bad in case.bad) else "error",
    }
    return RowScorer(
        score or case.score,
        RowSettings(**known | options),
        batch_size=case.batch_size,
        skip_rows=skip_rows,
        counted=counted,
    )


def streamed(case: Case, pieces: Sequence[int], scorer: RowScorer) -> np.ndarray:
    """The scores of all rows, given in pieces of so many rows, again and again."""
    found, sizes = [np.empty((0, case.channels), np.float32)], cycle(pieces)
    for i, (rows, bad) in enumerate(zip(case.series, case.bad, strict=True)):
        series = scorer.start(str(i))
        spoiled = np.where(bad[:, None], np.float32(np.inf), rows)
        done = 0
        while done < len(rows):
            end = done + next(sizes)
            scorer.push(series, spoiled[done:end])
            found += [part.channels for part in scorer.take()]
            done = end
        scorer.end(series)
    scorer.flush()
    return np.concatenate(found + [part.channels for part in scorer.take()])


class Recorded:
    """Scores windows and keeps them."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self.batches: list[np.ndarray] = []

    def __call__(self, windows: np.ndarray) -> np.ndarray:
        self.batches.append(windows.copy())
        return self.case.score(windows)


piece_sizes = st.lists(st.integers(0, 12), min_size=1, max_size=6).filter(any)


@given(case=cases(), pieces=piece_sizes)
@settings(max_examples=100)
@pytest.mark.slow
def test_streamed_scores_equal_brute_force(case: Case, pieces: list[int]) -> None:
    scorer = row_scorer(case)
    found = streamed(case, pieces, scorer)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, brute_force(case), rtol=1e-6)
    assert scorer.counts.rows == case.rows
    assert scorer.counts.series == len(case.series)
    assert scorer.counts.short_series == sum(len(rows) < case.layout.window for rows in case.series)


@given(case=cases(), pieces=piece_sizes, others=piece_sizes)
@pytest.mark.slow
def test_batches_hold_the_same_windows_whatever_the_pieces(case: Case, pieces: list[int], others: list[int]) -> None:
    one, two = Recorded(case), Recorded(case)
    scorer = row_scorer(case, one)
    np.testing.assert_array_equal(streamed(case, pieces, scorer), streamed(case, others, row_scorer(case, two)))
    assert len(one.batches) == len(two.batches)
    for batch, same in zip(one.batches, two.batches, strict=True):
        np.testing.assert_array_equal(batch, same)
    assert all(len(batch) == case.batch_size for batch in one.batches[:-1])
    assert sum(map(len, one.batches)) == scorer.counts.windows


@given(case=cases(), share=st.floats(0, 1), pieces=piece_sizes)
def test_rows_after_those_of_an_earlier_run_are_the_same(case: Case, share: float, pieces: list[int]) -> None:
    skip_rows = int(share * case.rows)
    whole = streamed(case, pieces, row_scorer(case))
    resumed = streamed(case, pieces, row_scorer(case, skip_rows=skip_rows))
    assert len(resumed) == len(whole)
    np.testing.assert_array_equal(resumed[skip_rows:], whole[skip_rows:])


# Single cases


def one_series(rows: int, *, bad: Sequence[int] = (), **settings: Any) -> Case:
    values = np.random.default_rng(0).integers(0, 1000, (rows, FEATURES)).astype(np.float32)
    given = {
        "layout": Layout(window=5, stride=5),
        "smooth": 1,
        "short_series": "error",
        "channels": 1,
        "batch_size": 4,
    }
    return Case([values], [np.isin(np.arange(rows), bad)], **given | settings)


def test_rows_of_an_earlier_run_cost_no_engine_time() -> None:
    case = one_series(1000)
    recorded = Recorded(case)
    scorer = row_scorer(case, recorded, skip_rows=900)
    streamed(case, [64], scorer)
    assert len(recorded.batches) == 100 // 20 + 1  # one that reaches back into the rows that are known
    assert scorer.counts.windows == 200


@pytest.mark.parametrize("rows", [0, 4])
def test_a_short_series_is_named_and_refused_by_default(rows: int) -> None:
    case = one_series(rows)
    with pytest.raises(DataError, match=f"series '0': has {rows} rows, fewer than the model's window of 5; pass"):
        streamed(case, [3], row_scorer(case))


def test_nothing_cannot_be_padded() -> None:
    case = one_series(0, short_series="pad")
    with pytest.raises(DataError, match=r"has 0 rows.*pass short_series='skip'$"):
        streamed(case, [3], row_scorer(case))


def test_a_failing_engine_is_told_with_its_rows() -> None:
    case, batches = one_series(103), count()

    def fail(windows: np.ndarray) -> np.ndarray:
        if next(batches) == 2:
            raise EngineError("model.onnx: out of memory")
        return case.score(windows)

    with pytest.raises(EngineError, match=r"^rows 40 to 59: model\.onnx: out of memory$"):
        streamed(case, [7], row_scorer(case, fail))


def test_the_rows_of_a_padded_series_end_with_it() -> None:
    def fail(_: np.ndarray) -> np.ndarray:
        raise EngineError("out of memory")

    case = one_series(3, short_series="pad")
    with pytest.raises(EngineError, match=r"^rows 0 to 2: out of memory$"):
        streamed(case, [7], row_scorer(case, fail))


def overflowing(windows: np.ndarray) -> np.ndarray:
    """No finite score for the window that starts with row 10 of `one_series`."""
    scores = fingerprint(windows)[..., :1]
    scores[windows[:, 0, 0] == one_series(30).series[0][10, 0], 2] = np.inf
    return scores


def test_a_score_that_is_not_finite_is_an_error_with_its_rows() -> None:
    case = one_series(30)
    with pytest.raises(DataError, match=r"^rows 10 to 14: the engine returned no finite score.*on_bad_rows='null'$"):
        streamed(case, [7], row_scorer(case, overflowing))


def test_a_score_that_is_not_finite_takes_its_whole_window_along_if_so_asked() -> None:
    case = one_series(30, bad=[22])
    scorer = row_scorer(case, overflowing, on_bad_rows="null")
    found = streamed(case, [7], scorer)[:, 0]
    assert np.flatnonzero(np.isnan(found)).tolist() == [*range(10, 15), *range(20, 25)]
    assert scorer.counts.bad_windows == 2


def test_overlapping_windows_help_out_where_one_has_no_finite_score() -> None:
    case = one_series(30, layout=Layout(window=5, stride=2))
    found = streamed(case, [7], row_scorer(case, overflowing, on_bad_rows="null"))
    assert np.isfinite(found).all()


def test_the_rows_of_many_series_may_come_in_any_order() -> None:
    case = Case(
        [np.random.default_rng(i).integers(0, 1000, (20 + i, FEATURES)).astype(np.float32) for i in range(3)],
        [np.zeros(20 + i, np.bool_) for i in range(3)],
        Layout(window=5, stride=1, align="last"),
        smooth=3,
        short_series="error",
        channels=1,
        batch_size=4,
    )
    scorer = row_scorer(case)
    states = [scorer.start(str(i)) for i in range(3)]
    found: dict[str, list[np.ndarray]] = {str(i): [] for i in range(3)}
    for row in range(22):
        for rows, state in zip(case.series, states, strict=True):
            if row < len(rows):
                scorer.push(state, rows[row : row + 1].copy())
    scorer.flush()
    for part in scorer.take():
        found[part.series.name].append(part.channels)
    for i, rows in enumerate(case.series):
        np.testing.assert_allclose(np.concatenate(found[str(i)]), of_series(case, rows, case.bad[i]), rtol=1e-6)


def test_only_windows_that_end_in_the_rows_counted_are_counted() -> None:
    case = one_series(30, bad=[22])
    scorer = row_scorer(case, overflowing, on_bad_rows="null", counted=range(10, 24))
    streamed(case, [7], scorer)
    assert (scorer.counts.windows, scorer.counts.bad_windows) == (2, 1)
