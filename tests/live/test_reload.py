"""Another engine for a running stream: what it takes over, and what is refused."""

import shutil
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from at_infer import EngineOptions, ScoreOptions, StreamScorer
from at_infer.errors import ConfigError
from at_infer.live import reload as reload_module
from at_infer.live.reload import Reloader, check_replacement, hand_over
from at_infer.live.tally import Tally
from at_infer.scoring.options import InputOptions
from tests.checkpoints import WINDOW
from tests.first_column import FirstColumn, N, rows_of
from tests.live.test_incidents import TABLE
from tests.live.test_watch import Live, json_lines, live  # noqa: F401 - a fixture
from tests.scored import COLUMNS, rows, variant

ONE = EngineOptions(threads=1)
OTHER = "1" * 64


def answered(parts: list[Any]) -> tuple[list[int], np.ndarray]:
    """Rows in the order they were answered, and their scores."""
    tags = [(tag, score) for part in parts for tag, score in zip(part.tags, part.score, strict=True) if tag is not None]
    return [tag for tag, _ in tags], np.array([score for _, score in tags])


@pytest.mark.parametrize("delay", [0, 5])
def test_an_engine_of_the_same_checkpoint_goes_on_as_if_it_had_always_been_there(models, delay):
    values = rows(6 * WINDOW).select(COLUMNS).to_numpy()
    names, tags = ["a", "b"] * (3 * WINDOW), list(range(6 * WINDOW))
    cut = 3 * WINDOW

    def stream(threshold: float) -> StreamScorer:
        return StreamScorer(models / "model.onnx", ScoreOptions(threshold=threshold), ONE, delay=delay)

    with stream(1.0) as whole, stream(1.0) as old, stream(0.5) as new:
        expected = answered([whole.push_many(values, names, tags=tags), whole.drain()])
        before = old.push_many(values[:cut], names[:cut], tags=tags[:cut])
        final, what = hand_over(old, new)
        after = new.push_many(values[cut:], names[cut:], tags=tags[cut:])
        assert (len(final.tags), what) == (0, "everything")
        found = answered([before, after, new.drain()])
        assert found[0] == expected[0]
        np.testing.assert_allclose(found[1], expected[1], atol=1e-5)
        assert after.is_anomaly.tolist() == (after.score > 0.5).tolist()


@pytest.mark.parametrize("delay", [0, 3])
@pytest.mark.parametrize("cut", [2, N - 1, N, 3 * N])
def test_another_engine_knows_the_last_rows_and_answers_each_row_once(delay, cut):
    options = ScoreOptions(threshold=1e9)
    old = StreamScorer(FirstColumn(), options, delay=delay)
    new = StreamScorer(FirstColumn(checkpoint_sha256=OTHER), options, delay=delay)
    count = 5 * N
    tags = list(range(count))
    before = old.push_many(rows_of(range(cut)), tags=tags[:cut])
    final, what = hand_over(old, new)
    after = [new.push_many(rows_of([i]), tags=[i]) for i in range(cut, count)]
    found, scores = answered([before, final, *after, new.drain()])
    assert found == tags
    assert what == "the last rows, smoothing restarts"
    whole = StreamScorer(FirstColumn(), options, delay=delay)
    expected = answered([whole.push_many(rows_of(range(count)), tags=tags), whole.drain()])[1]
    known = [i for i in tags if not np.isnan(scores[i])]
    assert scores[known].tolist() == expected[known].tolist()
    assert set(range(max(N, cut), count)) <= set(known)  # no waiting for a full window


@pytest.mark.parametrize("delay", [0, 5])
def test_in_mode_fusion_another_engine_answers_each_row_once_too(models, edited, delay):
    values = rows(5 * WINDOW).select(COLUMNS).to_numpy()
    tags, cut = list(range(len(values))), 2 * WINDOW
    options = ScoreOptions(threshold=1.0)
    with (
        StreamScorer(models / "model.onnx", options, ONE, delay=delay) as old,
        StreamScorer(edited(checkpoint_sha256=OTHER), options, ONE, delay=delay) as new,
    ):
        before = old.push_many(values[:cut], tags=tags[:cut])
        final, _ = hand_over(old, new)
        after = [new.push_many(values[i : i + 1], tags=[i]) for i in tags[cut:]]
        found, scores = answered([before, final, *after, new.drain()])
    assert found == tags
    assert not np.isnan(scores[WINDOW:]).any()


def test_rows_without_their_season_are_no_use_to_a_model_of_another_season():
    season = {"period_s": 86400.0, "offset_s": 0.0, "profile": [[1.0, -1.0], [], []]}
    options = ScoreOptions(threshold=1e9)
    old = StreamScorer(FirstColumn(), options)
    new = StreamScorer(FirstColumn(checkpoint_sha256=OTHER, season=season), options)
    old.push_many(rows_of(range(2 * N)), times=[f"2026-01-01T00:00:{i:02}Z" for i in range(2 * N)])
    _, what = hand_over(old, new)
    assert what == "no rows, as the daily seasons differ"
    again = new.push_many(rows_of([1]), times=["2026-01-01T00:00:00Z"])
    assert list(again.refused) == [0]  # time still only goes on


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"columns": ["a", "b", "d"]}, "columns of a, b, d, the old engine a, b, c"),
        ({"columns": ["b", "a", "c"]}, "columns of b, a, c, the old engine a, b, c"),
        ({"time_column": "t"}, "a time column of t, the old engine None"),
        ({"series_column": "s"}, "a series column of s, the old engine None"),
    ],
)
def test_an_engine_to_which_rows_mean_something_else_is_refused(change, what):
    old, new = StreamScorer(FirstColumn()), StreamScorer(FirstColumn(**change))
    with pytest.raises(ConfigError, match=rf"first\.column: has {what}; to use it, restart with another `state`$"):
        check_replacement(old, new, InputOptions())
    if "column" in what.split()[1]:
        check_replacement(old, new, InputOptions(no_time=True, one_series=True))


def test_an_engine_of_another_window_or_delay_is_refused():
    old = StreamScorer(FirstColumn())
    wide = FirstColumn(model=replace(old.metadata.model, window=2 * N))
    with pytest.raises(ConfigError, match=f"has a window of {2 * N}, the old engine {N}"):
        check_replacement(old, StreamScorer(wide), InputOptions())
    late = StreamScorer(FirstColumn(), ScoreOptions(threshold=1.0), delay=1)
    with pytest.raises(ConfigError, match="has a delay of 1, the old engine 0"):
        check_replacement(StreamScorer(FirstColumn()), late, InputOptions())


class Clock:
    """Goes on when told to."""

    now = 0.0

    def monotonic(self) -> float:
        return self.now


def test_a_file_that_changes_is_read_once_it_has_come_to_rest(tmp_path, monkeypatch):
    clock = Clock()
    monkeypatch.setattr(reload_module, "time", clock)
    path = tmp_path / "model.onnx"
    path.write_text("old")
    made = Reloader(path, StreamScorer, Tally(), print, follow_file=True)  # type: ignore[arg-type]

    def looks(count: int) -> list[bool]:
        found = []
        for _ in range(count):
            clock.now += 1.1
            found.append(made.is_due())
        return found

    assert looks(2) == [False, False]
    path.write_text("half")
    assert made.is_due() is False  # it is not looked at all the time
    assert looks(1) == [False]
    path.write_text("complete")
    assert looks(3) == [False, True, False]
    path.unlink()
    assert looks(3) == [False, True, False]  # refused, as it cannot be opened; said once
    (tmp_path / "model.onnx.json").write_text("beside")
    assert looks(3) == [False, True, False]
    made.requested = True
    assert [made.is_due(), made.is_due()] == [True, False]


# The command


@pytest.fixture
def engine(models: Path, tmp_path: Path) -> Path:
    """A model that may be replaced."""
    return Path(shutil.copy(models / "model.onnx", tmp_path / "live.onnx"))


def said(process: Live) -> str:
    return str(process.process.stderr.readline())


@pytest.mark.slow
def test_a_hangup_replaces_the_engine_and_a_bad_one_is_refused(live, models, engine, tmp_path):  # noqa: F811
    process: Live = live("--threshold", 3.0, "--max-delay-ms", 0, engine=engine)
    process.put(json_lines(TABLE[:30]))
    process.get(30)
    other = variant(models / "model.onnx", tmp_path / "v", columns=["x", "y", "z"]).read_bytes()
    for content, why in (
        (b"nonsense", "is not an ONNX"),
        (engine.read_bytes()[:1000], str(engine)),
        (other, "has columns of x, y, z"),
        (None, "no such"),
    ):
        engine.unlink()
        if content is not None:
            engine.write_bytes(content)
        process.process.send_signal(signal.SIGHUP)
        line = said(process)
        assert line.startswith(f"reload: refused, the old engine stays in use ({engine}: "), line
        assert why in line
        if content is None:
            engine.touch()
    process.put(json_lines(TABLE[30:32]))
    assert all(one["score"] is not None for one in process.get(2))  # it still scores
    variant(models / "model.onnx", tmp_path / "v", checkpoint_sha256=OTHER).replace(engine)
    process.process.send_signal(signal.SIGHUP)
    handed = "goes on with 1 series, threshold 3 -> 3; handed over: the last rows, smoothing restarts"
    assert said(process) == f"reload: {engine}: {handed}\n"
    process.put(json_lines(TABLE[32:34]))
    assert all(one["score"] is not None for one in process.get(2))
    answer = process.end()
    assert (answer.code, answer.err.count("\n")) == (0, 1)


@pytest.mark.slow
@pytest.mark.parametrize("sha", [OTHER, "0" * 64])
def test_an_incident_outlives_the_engine_it_was_found_by(live, models, engine, tmp_path, sha):  # noqa: F811
    process: Live = live(
        *("--threshold", 3.0, "--only", "incidents", "--reload", "--max-delay-ms", 0),
        *("--state", tmp_path / "state"),
        engine=engine,
    )
    process.put(json_lines(TABLE[:70]))
    (opened,) = process.get(1)
    variant(models / "model.onnx", tmp_path / "v", checkpoint_sha256=sha).replace(engine)
    assert said(process).startswith(f"reload: {engine}: goes on with 1 series")
    process.put(json_lines(TABLE[70:]))
    found = [opened]
    while found[-1]["event"] != "closed":
        found += process.get(1)
    assert [one["event"] for one in found].count("opened") == 1
    assert len({one["id"] for one in found}) == 1
    answer = process.end(signal.SIGTERM)
    assert answer.code == 0
    again: Live = live("--threshold", 3.0, "--only", "incidents", "--state", tmp_path / "state", engine=engine)
    assert again.end().code == 0  # the state is that of the new engine
