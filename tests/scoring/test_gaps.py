"""Gaps in time: what lies between two of them is scored as a series of its own, whoever reads the rows."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from at_infer import EngineOptions, ScoreOptions, Scorer, StreamScorer
from at_infer.engines import Engine
from at_infer.errors import ConfigError, DataError, EngineError
from at_infer.models.spacing import Spacing, find_gaps
from at_infer.scoring.rows import RowScorer
from at_infer.scoring.scorer import Scorer as FileScorer
from at_infer.scoring.settings import RowSettings
from at_infer.scoring.windows import MovingMean, WindowLayout
from tests.checkpoints import WINDOW
from tests.first_column import FirstColumn, N, rows_of
from tests.scored import Edit, Score, rows, values

MINUTE = Spacing(step=60.0, clock="date")
START = datetime(2024, 3, 30, 22)
ONE = EngineOptions(batch_size=1)  # whatever a batch does to the last bit of a score is out of the way


def timed(*stretches: int, pause: float = 4.0, seed: int = 0) -> pl.DataFrame:
    """Rows a minute apart, and so many minutes between two stretches."""
    minutes, at = [], 0.0
    for length in stretches:
        minutes += [at + i for i in range(length)]
        at = minutes[-1] + pause
    return rows(len(minutes), seed=seed, ts=[START + timedelta(minutes=minute) for minute in minutes])


def apart(frame: pl.DataFrame, *stretches: int) -> pl.DataFrame:
    """The same rows, each stretch as a series of its own."""
    return frame.with_columns(s=pl.Series([str(i) for i, length in enumerate(stretches) for _ in range(length)]))


@pytest.fixture
def model(edited: Edit) -> Path:
    return edited(spacing=MINUTE.to_dict(), time_column="ts", fill="forward")


@pytest.fixture
def plain_model(plain_edited: Edit) -> Path:
    return plain_edited(spacing=MINUTE.to_dict(), time_column="ts", fill="forward")


# The rule


def test_a_gap_is_more_than_so_many_steps_rounded() -> None:
    longest = MINUTE.longest_step()
    assert longest == 210.0
    assert find_gaps(np.array([0, 60, 240, 449, 660.0]), longest).tolist() == [4]
    assert find_gaps(np.array([0, 60.0]), longest, last=-300.0).tolist() == [0]
    assert find_gaps(np.array([0, -500.0, -440]), longest).tolist() == [1]  # a clock that was set back
    assert MINUTE.longest_step(10) == 630.0
    assert MINUTE.longest_step(0) is None


lengths = st.lists(st.integers(1, 23), min_size=1, max_size=6)


@given(
    lengths=lengths,
    window=st.integers(1, 7),
    align=st.sampled_from(["window", "last"]),
    smooth=st.integers(1, 5),
    short=st.sampled_from(["skip", "pad"]),
    batch_size=st.integers(1, 9),
    pieces=st.lists(st.integers(1, 12), min_size=1, max_size=5),
    skip=st.floats(0, 1),
)
@pytest.mark.slow
def test_the_core_scores_stretches_as_series_of_their_own(
    lengths: list[int],
    window: int,
    align: Any,
    smooth: int,
    short: Any,
    batch_size: int,
    pieces: list[int],
    skip: float,
) -> None:
    total, skipped = sum(lengths), int(skip * sum(lengths))
    data = np.random.default_rng(total).normal(size=(total, 2)).astype(np.float32)
    data[np.random.default_rng(1).random(data.shape) < 0.2] = np.nan
    starts = np.cumsum([0, *lengths])[:-1]
    times = np.arange(total) + 4.0 * np.searchsorted(starts, np.arange(total), side="right")
    short = "skip" if align == "last" else short

    def core(longest_step: float | None, skip_rows: int = 0) -> RowScorer:
        layout = WindowLayout(window=window, stride=1 if align == "last" else window, align=align)
        known = RowSettings(
            layout=layout,
            columns=["a", "b"],
            mean=[0.0, 0.0],
            fill="forward",
            longest_step=longest_step,
            finish=lambda: MovingMean(smooth, causal=align == "last"),
            reach=(smooth, smooth),
            short_series=short,
        )
        return RowScorer(
            lambda windows: windows.sum(axis=2, keepdims=True).cumsum(axis=1) + windows[:, :1, :1],
            known,
            batch_size=batch_size,
            skip_rows=skip_rows,
        )

    def taken(scorer: RowScorer) -> np.ndarray:
        scorer.flush()
        return np.concatenate([part.channels[:, 0] for part in scorer.take()])

    one_by_one = core(None)
    for first, length in zip(starts, lengths, strict=True):
        series = one_by_one.start()
        one_by_one.push(series, data[first : first + length].copy())
        one_by_one.end(series)
    expected = taken(one_by_one)
    for skip_rows in (0, skipped):
        together = core(3.5, skip_rows)
        series, done = together.start(), 0
        while done < total:
            end = min(total, done + pieces[done % len(pieces)])
            together.push(series, data[done:end].copy(), times=times[done:end])
            done = end
        together.end(series)
        np.testing.assert_array_equal(taken(together)[skip_rows:], expected[skip_rows:])
    counts = together.counts
    assert (counts.gaps, counts.windows) == (len(lengths) - 1, one_by_one.counts.windows)
    assert counts.short_stretches == (one_by_one.counts.short_series if len(lengths) > 1 else 0)
    assert counts.short_series == (max(lengths) < window)


# Files


@pytest.mark.parametrize("options", [{}, {"align": "last"}, {"align": "last", "delay": 5}, {"explain": "all"}], ids=str)
@pytest.mark.slow
def test_a_file_with_gaps_is_scored_as_its_stretches_are(score: Score, model: Path, options: dict[str, Any]) -> None:
    stretches = (90, 7, 200, WINDOW, 61)
    frame = timed(*stretches)
    options |= {"engine": model, "batch_size": 1}
    expected = score(apart(frame, *stretches), series_column="s", short_series="skip", **options)
    found = score(frame, **options)
    assert found.frame.equals(expected.frame.drop("s"), null_equal=True)
    assert (found.summary.gaps, found.summary.short_stretches, found.summary.short_series) == (4, 1, 0)
    assert (found.summary.series, expected.summary.series, expected.summary.gaps) == (1, 5, 0)
    assert found.summary.windows == expected.summary.windows
    bridged = score(frame, max_gap=0, **options)
    assert bridged.summary.gaps == 0
    assert not bridged.frame["score"].equals(found.frame["score"])
    assert score(frame, max_gap=4, **options).frame.equals(bridged.frame)


def test_a_pause_of_three_steps_is_no_gap_and_a_zone_makes_no_difference(score: Score, model: Path) -> None:
    frame = timed(50, 60, pause=3.0)
    assert score(frame, engine=model).summary.gaps == 0
    over_summer_time = timed(180, 60)
    expected = score(over_summer_time, engine=model)
    zoned = over_summer_time.with_columns(
        pl.col("ts").dt.replace_time_zone("UTC").dt.convert_time_zone("Europe/Berlin")
    )
    found = score(zoned, engine=model)
    assert found.summary.gaps == expected.summary.gaps == 1
    np.testing.assert_array_equal(found.score, expected.score)


def test_what_is_missing_behind_a_gap_does_not_repeat_what_was_before_it(plain_score: Score, plain_model: Path) -> None:
    frame = timed(40, 40)
    missing = (pl.int_range(pl.len()) >= 40) & (pl.int_range(pl.len()) < 50)
    frame = frame.with_columns(f00=pl.when(missing).then(None).otherwise(pl.col("f00")))
    found = plain_score(frame, engine=plain_model)
    other = frame.with_columns(f00=pl.when(pl.int_range(pl.len()) < 40).then(7.0).otherwise(pl.col("f00")))
    np.testing.assert_array_equal(plain_score(other, engine=plain_model).score[40:], found.score[40:])


@pytest.mark.slow
def test_a_run_that_stopped_between_gaps_goes_on_with_the_same_scores(
    score: Score, model: Path, small_parts: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    frame, options = timed(90, 7, 200, 130), {"engine": model, "batch_size": 1}
    whole = score(frame, **options)
    run, calls = FileScorer.score_windows, iter(range(1000))

    def fail(scorer: FileScorer, windows: np.ndarray) -> np.ndarray:
        if next(calls) == 12:
            raise EngineError("gone")
        return run(scorer, windows)

    with monkeypatch.context() as patch:
        patch.setattr(FileScorer, "score_windows", fail)
        with pytest.raises(EngineError, match="are kept"):
            score(tmp_path / "given.parquet", output=tmp_path / "again.parquet", overwrite=False, **options)
    found = score(
        tmp_path / "given.parquet", output=tmp_path / "again.parquet", overwrite=False, resume=True, **options
    )
    assert found.summary.resumed_rows > 0
    assert found.frame.equals(whole.frame)
    assert (found.summary.gaps, found.summary.short_stretches) == (3, 1)


def test_a_series_without_a_full_window_between_gaps_is_short(score: Score, model: Path) -> None:
    frame = timed(*[WINDOW - 1] * 5)
    with pytest.raises(
        DataError, match=r"the input: has at most 19 rows without a gap in time, fewer than .*max_gap=0"
    ):
        score(frame, engine=model)
    assert score(frame, engine=model, short_series="skip").frame["score"].null_count() == frame.height
    assert score(frame, engine=model, short_series="pad").frame["score"].null_count() == 0


def test_times_of_another_kind_tell_no_gaps_and_that_is_said(score: Score, model: Path) -> None:
    frame, said = timed(50, 60), []
    numbers = frame.with_columns(ts=pl.col("ts").dt.epoch("s"))
    found = score(numbers, engine=model, say=said.append)
    assert found.summary.gaps == 0
    assert said == [
        f"note: {found.path.parent / 'given.parquet'}: column 'ts' is Int64, the model was trained on dates and times; "
        f"gaps in time are ignored"
    ]
    with pytest.raises(
        DataError, match=r"column 'ts': Invalid isoformat string: 'h100'; gaps in time .* pass max_gap=0"
    ):
        score(frame.with_columns(ts=pl.format("h{}", 100 + pl.int_range(pl.len()))), engine=model)
    texts = frame.with_columns(ts=pl.col("ts").dt.strftime("%Y-%m-%dT%H:%M:%S"))
    assert score(texts, engine=model).summary.gaps == 1


def test_numbers_tell_gaps_if_the_model_was_trained_on_numbers(score: Score, edited: Edit) -> None:
    model = edited(spacing=Spacing(step=1.0, clock="number").to_dict(), time_column="t")
    frame = rows(110, t=[*range(50), *range(54, 114)])
    assert score(frame, engine=model).summary.gaps == 1
    with Scorer(model) as scorer:
        in_memory = scorer.score(values(frame), frame["t"].to_list())
    np.testing.assert_allclose(in_memory.score, score(frame, engine=model).score, rtol=1e-5)


def test_a_model_that_knows_no_spacing_looks_for_no_gaps(score: Score, models: Path) -> None:
    assert score(timed(50, 60), time_column="ts").summary.gaps == 0
    with pytest.raises(ConfigError, match=r"max_gap: .*model.onnx has no median time step"):
        score(timed(50, 60), max_gap=5)
    with pytest.raises(ConfigError, match="max_gap: -1 is too small"):
        ScoreOptions(max_gap=-1)


def test_rows_in_memory_have_gaps_too(model: Path) -> None:
    frame = timed(60, 70)
    with Scorer(model, engine_options=ONE) as scorer:
        found = scorer.score(values(frame), frame["ts"].to_list()).score
        parts = [scorer.score(values(part)).score for part in (frame[:60], frame[60:])]
        np.testing.assert_array_equal(found, np.concatenate(parts))
        with pytest.raises(DataError, match=r"times: .*; gaps in time are found by it; pass max_gap=0"):
            scorer.score(values(frame), list(range(130)))


# Streams


@pytest.mark.parametrize("delay", [0, 1, 5])
@pytest.mark.parametrize("size", [1, 7, 400])
@pytest.mark.slow
def test_a_stream_scores_as_a_file_does_and_tells_every_row_once_in_order(
    score: Score, model: Path, tmp_path: Path, delay: int, size: int
) -> None:
    stretches = (90, 3, 25, 1, 70)
    frame = timed(*stretches)
    expected = score(frame, engine=model, align="last", delay=delay, batch_size=1).score
    data, times = values(frame), frame["ts"].dt.strftime("%Y-%m-%dT%H:%M:%SZ").to_list()
    found: list[tuple[int, float]] = []
    state = tmp_path / "state"
    parts = list(pairwise([*range(0, frame.height, size), frame.height]))
    for sitting in (parts[at : at + 9] for at in range(0, len(parts), 9)):  # and then it starts again
        with StreamScorer(model, engine_options=ONE, delay=delay) as stream:
            if state.exists():
                stream.load(state)
            for part in sitting:
                rows_ = slice(*part)
                pushed = stream.push_many(data[rows_].copy(), times=times[rows_], tags=range(*part))
                order = [i for i in pushed.in_order() if pushed.tags[i] is not None]
                found += [(pushed.tags[i], float(pushed.score[i])) for i in order]
            stream.save(state)
            if sitting[-1][1] == frame.height:
                left = stream.drain()
                found += list(zip(left.tags, left.score.tolist(), strict=True))
    assert [tag for tag, _ in found] == list(range(frame.height))
    np.testing.assert_array_equal(np.array([one for _, one in found], np.float32), expected)


def test_a_stream_counts_gaps_and_series_have_their_own() -> None:
    engine: Engine = FirstColumn(spacing=MINUTE)
    stream = StreamScorer(engine)
    minutes = [*range(N), *range(N + 10, 2 * N + 10)]
    for minute in minutes:
        at = datetime(2024, 1, 1, tzinfo=UTC) + timedelta(minutes=minute)
        pushed = stream.push_many(rows_of([minute, minute]), ["a", f"b{minute}"], [at, at])
    assert stream.core.counts.gaps == 1
    assert pushed.score[0] == minutes[-1]


def test_a_stream_says_once_that_times_of_another_kind_tell_no_gaps() -> None:
    stream = StreamScorer(FirstColumn(spacing=MINUTE))
    told = [stream.push_many(rows_of([i]), times=[1000 * i]).notes for i in range(3)]
    assert told == [["times are not dates and times as in the training data; gaps in time are ignored"], [], []]
    assert stream.core.counts.gaps == 0


Cli = Callable[..., Any]


def test_the_command_line_counts_gaps_and_takes_none(run_cli: Cli, model: Path, tmp_path: Path) -> None:
    timed(90, 7, 60).write_parquet(tmp_path / "in.parquet")
    words = ["score", tmp_path / "in.parquet", "--engine", model, "-o", tmp_path / "out.parquet", "--overwrite"]
    assert "2 gaps in time: no window spans one" in run_cli(*words).out
    assert '"gaps": 2, "short_stretches": 1' in run_cli(*words, "--json").out
    assert "gaps" not in run_cli(*words, "--max-gap", "none").out
    answer = run_cli(*words, "--max-gap", "soon")
    assert answer.err == "error: --max-gap: 'soon' is neither a whole number nor none\n"
