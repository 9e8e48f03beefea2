"""StreamScorer: rows as they come, scored as `score --align last` would score them in a file."""

import json
from copy import copy
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from at_infer import EngineOptions, ScoreOptions, Scorer, StreamScorer
from at_infer.engines import open_engine
from at_infer.errors import ConfigError, DataError
from at_infer.live.times import check_order, moment
from tests.checkpoints import FEATURES, SCALER, WINDOW
from tests.first_column import FirstColumn, N, rows_of


def each_fill(path):
    """A real model, once for each way to fill gaps."""
    opened = {}
    with open_engine(path, threads=1) as engine:
        for fill in ("error", "forward", "mean"):
            opened[fill] = copy(engine)
            opened[fill].metadata = replace(engine.metadata, fill=fill)
        yield opened


@pytest.fixture(scope="module")
def engines(models):
    """With the default score."""
    yield from each_fill(models / "model.onnx")


@pytest.fixture(scope="module")
def plain_engines(plain_models):
    """With mode reconstruction."""
    yield from each_fill(plain_models / "model.onnx")


# The same scores as those of a file


@settings(max_examples=60)
@given(data=st.data())
@pytest.mark.slow
def test_scores_are_those_of_a_file_whatever_the_order_and_the_chunks(engines, plain_engines, data):
    fill = data.draw(st.sampled_from(["error", "forward", "mean"]), "fill")
    smooth = data.draw(st.sampled_from([None, 1, 3, 7]), "smooth")
    engine = (engines if smooth is None else plain_engines)[fill]
    lengths = data.draw(st.lists(st.integers(1, 3 * WINDOW), min_size=1, max_size=6), "lengths")
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32), "seed"))
    series = rng.permutation(np.repeat(np.arange(len(lengths)), lengths))
    if data.draw(st.booleans(), "one after the other"):
        series = np.sort(series)
    rows = (np.array(SCALER.mean) + np.array(SCALER.scale) * rng.normal(size=(len(series), FEATURES))).astype("f4")
    if fill != "error":
        rows[rng.random(rows.shape) < data.draw(st.sampled_from([0.0, 0.05, 0.6]), "gaps")] = np.nan
    options = ScoreOptions(smooth=smooth, threshold=1.0, align="last", short_series="skip")
    batch_size = data.draw(st.integers(1, 9), "batch size")
    stream = StreamScorer(engine, options, EngineOptions(batch_size=batch_size), max_series=len(lengths))
    cuts = np.sort(rng.integers(0, len(rows) + 1, data.draw(st.integers(0, 20), "cuts")))
    found = [stream.push_many(*part) for part in zip(np.split(rows, cuts), np.split(series, cuts), strict=True)]
    assert not any(pushed.refused or pushed.dropped for pushed in found)
    score = np.concatenate([pushed.score for pushed in found])
    is_anomaly = np.concatenate([pushed.is_anomaly for pushed in found])
    reference = Scorer(engine, options)
    for i in range(len(lengths)):
        expected = reference.score(rows[series == i])
        np.testing.assert_allclose(score[series == i], expected.score, atol=1e-6, rtol=1e-6)
        clear = ~(np.abs(expected.score - 1.0) < 1e-5)
        assert (is_anomaly[series == i] == expected.is_anomaly)[clear].all()


def test_one_row_after_the_other_is_the_same_as_many_at_once(engines):
    rows = np.random.default_rng(1).normal(size=(4 * WINDOW, FEATURES)).astype("f4")
    names = ["x", "y"] * (2 * WINDOW)
    together = StreamScorer(engines["error"]).push_many(rows, names)
    alone = StreamScorer(engines["error"])
    found = [alone.push(row, series=name) for row, name in zip(rows, names, strict=True)]
    scores = np.array([np.nan if one.score is None else one.score for one in found])
    np.testing.assert_allclose(scores, together.score, atol=1e-6)
    assert [one.is_anomaly for one in found] == together.is_anomaly.tolist()


def test_a_path_opens_its_engine_and_closes_it(engines):
    with StreamScorer(engines["error"].path, engine_options=EngineOptions(threads=1)) as stream:
        assert stream.push([0.0] * FEATURES) == (None, False)
    assert not hasattr(stream.scorer.engine, "session")


def test_another_score_mode_is_that_of_a_file(plain_engines):
    rows = np.random.default_rng(2).normal(size=(3 * WINDOW, FEATURES)).astype("f4")
    options = ScoreOptions(mode="addition", smooth=3, threshold=0.1, align="last")
    found = StreamScorer(plain_engines["error"], options).push_many(rows)
    expected = Scorer(plain_engines["error"], options).score(rows)
    np.testing.assert_allclose(found.score, expected.score, atol=1e-6)


@pytest.mark.parametrize("delay", [1, 5])
def test_rows_that_are_scored_late_have_the_scores_of_a_file_and_come_back_with_their_tags(engines, delay):
    rows = np.random.default_rng(3).normal(size=(4 * WINDOW, FEATURES)).astype("f4")
    names = ["x", "y"] * (2 * WINDOW)
    options = ScoreOptions(delay=delay, align="last")
    stream = StreamScorer(engines["error"], delay=delay)
    parts = [stream.push_many(rows[i : i + 7], names[i : i + 7], tags=range(i, i + 7)) for i in range(0, 77, 7)]
    parts += [stream.push_many(rows[77:], names[77:], tags=range(77, 80)), stream.drain()]
    late = {tag: score for part in parts for tag, score in zip(part.tags, part.score, strict=True) if tag is not None}
    assert sorted(late) == list(range(len(rows)))
    for first in (0, 1):
        expected = Scorer(engines["error"], options).score(rows[first::2]).score
        np.testing.assert_allclose([late[i] for i in range(first, len(rows), 2)], expected, rtol=1e-5)
    assert np.isnan(stream.push_many(rows[:1], ["x"]).score).all()  # it begins anew


def test_rows_that_wait_are_final_when_a_row_overflows(engines):
    rows = np.random.default_rng(4).normal(size=(3 * WINDOW, FEATURES)).astype("f4")
    rows[2 * WINDOW] = 3e38
    stream = StreamScorer(engines["error"], delay=5)
    found = [stream.push_many(row[None], tags=[i]) for i, row in enumerate(rows)]
    assert found[2 * WINDOW].ended == {0: range(1, 6)}
    tags = [tag for part in found for tag in (part.tags[i] for i in part.in_order()) if tag is not None]
    assert tags == list(range(len(rows))), "those behind it have no score, and need not wait for one"
    together = StreamScorer(engines["error"], delay=5).push_many(rows, tags=range(len(rows)))
    assert [together.tags[i] for i in together.in_order() if together.tags[i] is not None] == tags


def test_a_delay_without_a_threshold_of_its_own_is_refused(engines):
    with pytest.raises(ConfigError, match=r"delay: .* has thresholds for delays of 0, 1, 5 rows"):
        StreamScorer(engines["error"], delay=7)


def test_every_row_is_needed_by_the_default_score(engines):
    with pytest.raises(ConfigError, match="every: mode fusion needs every row"):
        StreamScorer(engines["error"], every=2)


# Which rows have a score


def test_a_series_has_no_score_before_its_first_full_window():
    found = StreamScorer(FirstColumn()).push_many(rows_of(range(N + 2)))
    assert np.isnan(found.score).tolist() == [True] * (N - 1) + [False] * 3
    assert found.score[N - 1 :].tolist() == [N - 1, N, N + 1]


def test_no_rows_are_no_scores():
    found = StreamScorer(FirstColumn()).push_many(np.empty((0, 3)))
    assert (len(found.score), len(found.is_anomaly), found.refused) == (0, 0, {})


def test_every_third_row_is_scored_from_the_first_full_window_on_and_the_mean_has_only_those():
    engine = FirstColumn()
    stream = StreamScorer(engine, ScoreOptions(smooth=4, threshold=0.0), every=3)
    found = stream.push_many(rows_of(range(N + 7)))
    scored = {i: float(score) for i, score in enumerate(found.score) if not np.isnan(score)}
    first = N - 1
    assert scored == {first: first, first + 3: first + 1.5, first + 6: first + 4.5}
    assert sum(engine.batches) == 3


def test_windows_of_many_series_share_a_batch():
    engine = FirstColumn()
    stream = StreamScorer(engine, engine_options=EngineOptions(batch_size=4))
    names = [f"s{i}" for i in range(6)]
    for step in range(N):
        found = stream.push_many(rows_of([10 * i + step for i in range(6)]), names)
    assert engine.batches == [4, 2]
    assert found.score.tolist() == [10 * i + N - 1 for i in range(6)]


@pytest.mark.parametrize(("lanes", "asked", "size"), [(0, None, 8), (2, None, 32), (2, 5, 5)])
def test_live_rows_of_a_small_network_come_in_larger_batches_unless_asked_for(lanes, asked, size):
    engine = FirstColumn()
    engine.lanes = lanes
    with StreamScorer(engine, engine_options=EngineOptions(batch_size=asked)) as stream:
        assert stream.batch_size == size


def test_windows_of_one_series_share_a_batch_and_each_is_its_own():
    engine = FirstColumn()
    StreamScorer(engine, engine_options=EngineOptions(batch_size=5)).push_many(rows_of(range(N - 1 + 7)))
    assert engine.batches == [5, 2]
    found = [window[:, 0].tolist() for window in np.concatenate(engine.windows)]
    assert found == [list(range(i, i + N)) for i in range(7)]


# Memory


def test_the_series_least_recently_seen_is_dropped_and_begins_again():
    stream = StreamScorer(FirstColumn(), max_series=2)
    for name in "abababab":
        assert stream.push_many(rows_of([1]), [name]).dropped == []
    stream.push_many(rows_of([1] * N), ["a"] * N)
    assert stream.push(rows_of([5])[0], series="a").score == 5.0
    assert stream.push_many(rows_of([1]), ["c"]).dropped == ["b"]
    assert stream.push(rows_of([6])[0], series="a").score == 6.0
    back = stream.push_many(rows_of([1] * N), ["b"] * N)
    assert back.dropped == ["c"]
    assert np.isnan(back.score).tolist() == [True] * (N - 1) + [False]
    assert stream.push(rows_of([7])[0], series="a").score == 7.0
    assert len(stream.series) == 2


def test_a_series_that_was_dropped_forgets_its_time_and_its_scores():
    stream = StreamScorer(FirstColumn(), ScoreOptions(smooth=3, threshold=0.0), max_series=1)
    stream.push_many(rows_of([100] * (N + 3)), ["a"] * (N + 3), range(N + 3))
    stream.push_many(rows_of([0]), ["b"], [0])
    found = stream.push_many(rows_of(range(N)), ["a"] * N, range(N))
    assert found.refused == {}
    assert found.score[-1] == N - 1


def test_many_more_series_than_allowed_in_one_call_drop_each_other_in_order():
    names = [f"s{i}" for i in range(100)]
    stream = StreamScorer(FirstColumn(), max_series=3)
    found = stream.push_many(rows_of(range(100)), names)
    assert found.dropped == names[:-3]
    assert list(stream.series) == names[-3:]
    assert [known.state.stretch.buffer[0, 0] for known in stream.series.values()] == [97, 98, 99]


def test_series_dropped_within_one_call_have_scored_windows_of_their_own_rows():
    names = [name for name in "abc" for _ in range(N)]
    found = StreamScorer(FirstColumn(), max_series=1).push_many(rows_of(range(3 * N)), names)
    assert found.dropped == ["a", "b"]
    assert found.score[N - 1 :: N].tolist() == [N - 1, 2 * N - 1, 3 * N - 1]


def test_memory_grows_with_the_series_and_keeps_what_is_there():
    stream = StreamScorer(FirstColumn())
    names = [f"s{i}" for i in range(50)]
    for step in range(N):
        found = stream.push_many(rows_of([100 * i + step for i in range(50)]), names)
    assert found.score.tolist() == [100 * i + N - 1 for i in range(50)]
    assert len(stream.series) == 50


# Rows that are refused


@pytest.mark.parametrize(
    ("value", "what"),
    [(np.inf, "is infinite"), (-np.inf, "is infinite"), (1e39, "is infinite"), (np.nan, "has no value")],
)
def test_a_value_that_no_model_can_use_is_refused_and_the_series_goes_on_without_it(value, what):
    rows = rows_of(range(N + 1)).astype(np.float64)
    rows[4, 1] = value
    found = StreamScorer(FirstColumn()).push_many(rows)
    assert list(found.refused) == [4]
    assert found.refused[4].startswith(f"column 'b' {what}")
    assert np.isnan(found.score).tolist() == [True] * N + [False]
    assert found.score[N] == N


def test_a_refused_row_has_no_part_in_filling_gaps():
    engine = FirstColumn(fill="forward")
    rows = rows_of(range(N + 1))
    rows[3, 2] = 7.0
    rows[4] = [np.inf, 0.0, 9.0]
    rows[5, 2] = np.nan
    assert list(StreamScorer(engine).push_many(rows).refused) == [4]
    assert engine.windows[0][0, :, 2].tolist() == [0, 0, 0, 7, 7, 0, 0, 0]


def test_rows_can_be_given_by_name():
    stream = StreamScorer(FirstColumn(fill="mean"))
    for i in range(N):
        found = stream.push({"c": 0, "b": None, "a": i, "more": "ignored"})
    assert found.score == N - 1
    with pytest.raises(DataError, match="row: column 'b' is missing"):
        stream.push({"a": 1, "c": 2})


@pytest.mark.parametrize("rows", [[["x", 0, 0]], [[1, 2]], [[[1, 2, 3]]], [[1, 2, 3], [1, 2]], [[10**400, 1, 1]]])
def test_rows_that_are_not_numbers_of_the_right_shape_are_an_error(rows):
    with pytest.raises(DataError, match=r"^rows: "):
        StreamScorer(FirstColumn()).push_many(rows)


def test_series_and_times_must_be_as_many_as_the_rows():
    with pytest.raises(DataError, match="there are 2, with 1 series"):
        StreamScorer(FirstColumn()).push_many(rows_of([1, 2]), ["a"])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"every": 0}, "every: 0 is too small"),
        ({"max_series": 0}, "max_series: 0 is too small"),
        ({"options": ScoreOptions(explain="top")}, "first.column has no output reconstruction"),
        ({"options": ScoreOptions(stride=2)}, "leave `stride` out"),
        ({"options": ScoreOptions(smooth=2)}, "give a number as `threshold`"),
    ],
)
def test_options_that_cannot_work_are_refused(options, message):
    with pytest.raises(ConfigError, match=message):
        StreamScorer(FirstColumn(), **options)


# Time


def test_time_that_stands_still_or_goes_back_is_refused_within_its_series_only():
    stream = StreamScorer(FirstColumn())
    names, times = ["a", "b", "a", "b", "a", "a"], [5, 1, 5, 2, 4, 6]
    found = stream.push_many(rows_of(range(6)), names, times)
    assert found.refused == {2: "time 5 is there twice", 4: "time 4 comes after 5"}
    with pytest.raises(DataError, match="row: time 6 is there twice"):
        stream.push(rows_of([1])[0], series="a", time=6)
    assert stream.series["a"].state.stretch.rows == 2


def test_a_refused_time_does_not_make_a_series():
    stream = StreamScorer(FirstColumn())
    assert stream.push_many(rows_of([1]), ["a"], ["yesterday"]).refused
    assert len(stream.series) == 0


@pytest.mark.parametrize(
    ("earlier", "later"),
    [
        (1, 2),
        (-0.5, 0),
        ("9", "10"),
        (2**62, 2**62 + 1),
        ("2026-01-01", "2026-01-01T00:00:01"),
        ("2026-01-01 00:00:00.1234567", "2026-01-01 00:00:00.1234568"),
        ("2026-01-01T00:00:00.123456Z", "2026-01-01T00:00:00.123456001Z"),
        ("2026-01-01T12:00:00+02:00", "2026-01-01T11:00:00Z"),
        (datetime(2026, 1, 1, tzinfo=timezone(timedelta(hours=1))), datetime(2026, 1, 1, tzinfo=UTC)),
    ],
)
def test_times_are_compared_by_what_they_mean(earlier, later):
    check_order(moment(earlier), moment(later), earlier, later)
    with pytest.raises(DataError, match="comes after"):
        check_order(moment(later), moment(earlier), later, earlier)
    with pytest.raises(DataError, match="is there twice"):
        check_order(moment(later), moment(later), later, later)


@pytest.mark.parametrize("time", ["", "soon", "2026-13-01", None, True, float("nan"), "nan", "inf", [1], {}])
def test_what_is_no_time_is_refused(time):
    with pytest.raises(DataError, match="neither a number nor a date and time"):
        moment(time)


@pytest.mark.parametrize(("one", "other"), [(1, "2026-01-01"), ("2026-01-01", "2026-01-02T00:00Z")])
def test_times_of_different_kinds_are_not_compared(one, other):
    with pytest.raises(DataError, match="before it a"):
        check_order(moment(one), moment(other), one, other)


# State


@pytest.mark.parametrize("delay", [0, 5])
@pytest.mark.parametrize(("cut", "batch_sizes"), [(150, (8, 3)), (3, (1, 16)), (0, (8, 8))])
def test_a_stream_goes_on_from_its_state_as_if_it_had_never_stopped(engines, tmp_path, cut, batch_sizes, delay):
    rng = np.random.default_rng(3)
    rows = rng.normal(size=(400, FEATURES)).astype("f4")
    rows[rng.random(rows.shape) < 0.1] = np.nan
    names = [("a", 7, "ü", 2.5)[i] for i in rng.integers(0, 4, 400)]
    times = [f"2026-01-01T00:00:00.{i:09}Z" for i in range(400)]
    options = ScoreOptions(threshold=1.0, align="last", delay=delay)
    whole = StreamScorer(engines["forward"], options).push_many(rows, names, times)
    first, second = (StreamScorer(engines["forward"], options, EngineOptions(batch_size=size)) for size in batch_sizes)
    before = first.push_many(rows[:cut], names[:cut], times[:cut])
    first.save(tmp_path / "state", {"row": cut})
    assert second.load(tmp_path / "state") == {"row": cut}
    assert list(second.series) == list(first.series)
    again = second.push_many(rows[:cut][-1:], names[:cut][-1:], times[:cut][-1:])
    assert len(again.refused) == len(again.score)
    after = second.push_many(rows[cut:], names[cut:], times[cut:])
    np.testing.assert_allclose(np.concatenate([before.score, after.score]), whole.score, atol=1e-6, rtol=1e-6)


@pytest.mark.slow
def test_many_series_come_back_from_a_state(tmp_path):
    stream = StreamScorer(FirstColumn())
    names = list(range(700))
    for step in range(N - 1):
        stream.push_many(rows_of([1000 * step + i for i in names]), names)
    stream.save(tmp_path / "state")
    engine = FirstColumn()
    back = StreamScorer(engine)
    back.load(tmp_path / "state")
    back.push_many(rows_of([1000 * (N - 1) + i for i in names]), names)
    expected = [[1000 * step + i for step in range(N)] for i in names]
    assert np.concatenate(engine.windows)[:, :, 0].tolist() == expected


def saved(tmp_path: Path, **options) -> Path:
    stream = StreamScorer(FirstColumn(), **options)
    stream.push_many(rows_of(range(4)), ["a", "b", "a", "c"])
    stream.save(tmp_path / "state")
    return tmp_path / "state"


@pytest.mark.parametrize("change", [{"checkpoint_sha256": "1" * 64}, {"columns": ["a", "b", "d"]}, {"fill": "mean"}])
def test_the_state_of_another_model_is_refused(tmp_path, change):
    with pytest.raises(ConfigError, match=r"state: belongs to another model; give its `engine`, or another `state`$"):
        StreamScorer(FirstColumn(**change)).load(saved(tmp_path))


def test_a_state_goes_from_one_engine_of_a_checkpoint_to_another(tmp_path):
    stream = StreamScorer(FirstColumn(precision="fp16", batch=[1, 2, 4]))
    stream.load(saved(tmp_path))
    assert len(stream.series) == 3


def test_the_state_of_another_score_is_refused(tmp_path):
    path = saved(tmp_path, options=ScoreOptions(smooth=3, threshold=1.0))
    with pytest.raises(ConfigError, match=r"state: was written with smooth 3, not 1; give the same"):
        StreamScorer(FirstColumn()).load(path)


def test_the_state_of_another_delay_is_refused(tmp_path):
    path = saved(tmp_path, options=ScoreOptions(threshold=1.0), delay=2)
    with pytest.raises(ConfigError, match=r"state: was written with delay 2, not 0; give the same"):
        StreamScorer(FirstColumn()).load(path)


def test_a_state_of_more_series_than_allowed_is_refused(tmp_path):
    with pytest.raises(ConfigError, match=r"holds 3 series, more than max_series=2"):
        StreamScorer(FirstColumn(), max_series=2).load(saved(tmp_path))


def test_a_state_that_is_damaged_or_cut_anywhere_is_refused(tmp_path):
    path = saved(tmp_path)
    good = path.read_bytes()
    for at in np.random.default_rng(0).integers(0, len(good), 60).tolist():
        for bad in (good[:at], good[:at] + bytes([good[at] ^ 0x5A]) + good[at + 1 :], good + b"more"):
            path.write_bytes(bad)
            stream = StreamScorer(FirstColumn())
            with pytest.raises((DataError, ConfigError)):
                stream.load(path)
            assert len(stream.series) == 0


@pytest.mark.parametrize("text", ["", "hello", "[]", '{"at_infer_stream": 99}'])
def test_a_file_that_is_no_state_is_refused(tmp_path, text):
    (tmp_path / "state").write_text(text)
    with pytest.raises(DataError, match="remove it to start again"):
        StreamScorer(FirstColumn()).load(tmp_path / "state")


def test_a_state_with_series_that_have_no_plain_name_is_not_written(tmp_path):
    stream = StreamScorer(FirstColumn())
    stream.push(rows_of([1])[0], series=("a", 1))
    with pytest.raises(DataError, match="name series by short texts or numbers"):
        stream.save(tmp_path / "state")
    assert list(tmp_path.iterdir()) == []


def test_the_state_begins_with_a_line_that_people_can_read(tmp_path):
    head = json.loads(saved(tmp_path).read_bytes().split(b"\n")[0])
    assert [series["name"] for series in head["series"]] == ["b", "a", "c"]
    assert [series["numbers"]["rows"] for series in head["series"]] == [1, 2, 1]
    assert head["model"]["columns"] == ["a", "b", "c"]
