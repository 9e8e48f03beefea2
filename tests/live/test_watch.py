"""at-infer watch: rows in, one line out per row, whatever happens to the lines, the pipes and the process."""

import io
import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from typer.main import get_command

from at_infer import EngineOptions
from at_infer.cli import app
from at_infer.errors import ConfigError, OutputError
from at_infer.live import watch as watch_module
from at_infer.live.lines import Block, PipedLines
from at_infer.live.options import WatchOptions
from at_infer.live.rows import RowReader
from at_infer.live.scorer import StreamScorer
from at_infer.live.watch import LoopParts, Watch
from at_infer.scoring.options import ScoreOptions
from tests.checkpoints import WINDOW, checkpoint
from tests.conftest import Answer
from tests.first_column import FirstColumn, N
from tests.programs import programs
from tests.scored import COLUMNS, rows

# The loop, in this process


def record(a: float, **more: Any) -> dict[str, Any]:
    return {"a": a, "b": 0, "c": 0, **more}


def as_lines(records: list[Any]) -> bytes:
    return b"".join((r if isinstance(r, bytes) else json.dumps(r).encode()) + b"\n" for r in records)


class Run:
    """The whole life of a loop over some lines."""

    def __init__(
        self, text: bytes, tmp_path: Path, *, engine: FirstColumn | None = None, reader=None, stream=None, **more
    ) -> None:
        self.engine = engine or FirstColumn()
        self.said: list[str] = []
        self.out = io.BytesIO()
        (tmp_path / "in").write_bytes(text)
        with (tmp_path / "in").open("rb") as file:
            self.watch = Watch(
                PipedLines(file.fileno()),
                RowReader(["a", "b", "c"], **(reader or {})),
                StreamScorer(self.engine, ScoreOptions(threshold=100.0), **(stream or {})),
                self.out,
                self.said.append,
                **more,
            )
            self.watch.run(lambda: False)

    @property
    def answers(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.out.getvalue().splitlines()]


def test_every_row_has_a_line_and_its_score_is_null_until_there_is_a_full_window(tmp_path):
    run = Run(as_lines([record(98 + i) for i in range(N + 1)]), tmp_path)
    expected = [{"row": i, "score": None, "is_anomaly": False} for i in range(N - 1)]
    expected += [{"row": i, "score": 98 + i, "is_anomaly": True} for i in (N - 1, N)]
    assert run.answers == expected
    assert run.said == []


def test_time_and_series_are_carried_as_they_came(tmp_path):
    records = [record(1, t=i / 2, s=s) for i in range(2) for s in ('ü"\\\n', 7, "%s")]
    run = Run(as_lines(records), tmp_path, reader={"time_column": "t", "series_column": "s"})
    assert [(answer["t"], answer["s"]) for answer in run.answers] == [(r["t"], r["s"]) for r in records]
    assert list(run.answers[0]) == ["row", "s", "t", "score", "is_anomaly"]
    assert '"ü\\"' in run.out.getvalue().decode()


def test_scores_survive_the_way_through_json(tmp_path):
    values = np.random.default_rng(0).normal(size=N + 50).astype(np.float32) * np.float32(1e-3)
    run = Run(as_lines([record(float(value)) for value in values]), tmp_path)
    found = [answer["score"] for answer in run.answers[N - 1 :]]
    assert np.array(found, np.float32).tolist() == values[N - 1 :].tolist()


def test_an_infinite_score_is_a_line_of_json_all_the_same(tmp_path):
    class Overflowing(FirstColumn):
        def run(self, windows):
            return {"score": np.full(windows.shape[:2], np.inf, np.float32)}

    run = Run(as_lines([record(1)] * N), tmp_path, engine=Overflowing())
    assert run.out.getvalue().splitlines()[-1] == b'{"row":7,"score":1e999,"is_anomaly":true}'
    assert run.answers[-1]["score"] == float("inf")


BAD = {
    b'{"a": 1': "is not JSON (",
    b'{"a": "x", "b": 1, "c": 1}': "column 'a' is 'x', not a number",
    b'{"a": Infinity, "b": 1, "c": 1}': "column 'a' is infinite, or too large for float32",
    b'{"a": 1, "b": 1e39, "c": 1}': "column 'b' is infinite, or too large for float32",
    b'{"a": 1, "b": 1' + b"0" * 400 + b', "c": 1}': "a number is too large for float32",
    b'{"a": 1, "b": null, "c": 1}': "column 'b' has no value",
    b'{"a": 1, "b": NaN, "c": 1}': "column 'b' has no value",
    b"\xff": "is not UTF-8",
    b'"text"': "is not a JSON object",
}


def test_bad_lines_are_reported_with_their_number_and_the_stream_goes_on(tmp_path):
    records: list[Any] = [record(0), b""]  # an empty line is a line, but neither a row nor bad
    for i, line in enumerate(BAD, start=1):
        records += [line, record(i)]
    run = Run(as_lines(records), tmp_path)
    said = {int(re.match(r"stdin: line (\d+): ", text)[1]): text for text in run.said}
    assert sorted(said) == [3 + 2 * i for i in range(len(BAD))]
    for i, what in enumerate(BAD.values()):
        assert said[3 + 2 * i].startswith(f"stdin: line {3 + 2 * i}: {what}")
        assert said[3 + 2 * i].endswith("; the line is skipped")
    assert [answer["row"] for answer in run.answers] == [2 * i for i in range(len(BAD) + 1)]
    assert [answer["score"] for answer in run.answers[N - 1 :]] == [7, 8, 9]
    assert (run.watch.tally.bad_lines, run.watch.tally.rows, run.watch.tally.scored) == (len(BAD), len(BAD) + 1, 3)


@pytest.mark.parametrize("fill", ["forward", "mean"])
def test_gaps_are_filled_as_the_model_was_trained(tmp_path, fill):
    records = [record(i) | {"b": 5.0} for i in range(N)]
    records[3]["b"] = None
    run = Run(as_lines(records), tmp_path, engine=FirstColumn(fill=fill))
    assert run.said == []
    assert run.engine.windows[0][0, 3, 1] == (5.0 if fill == "forward" else 0.0)


def test_times_that_are_malformed_repeated_or_out_of_order_are_bad_lines(tmp_path):
    times = [1, 2, 2, "tomorrow", 1.5, 3, True]
    records = [record(1, t=t, s="x") for t in times] + [record(1, t=1, s="y")]
    run = Run(as_lines(records), tmp_path, reader={"time_column": "t", "series_column": "s"})
    assert [(answer["s"], answer["t"]) for answer in run.answers] == [("x", 1), ("x", 2), ("x", 3), ("y", 1)]
    assert run.said == [
        "stdin: line 7: column 't' is True, neither text nor a number; the line is skipped",
        "stdin: line 3: series 'x': time 2 is there twice; the line is skipped",
        "stdin: line 4: series 'x': time 'tomorrow' is neither a number nor a date and time; the line is skipped",
        "stdin: line 5: series 'x': time 1.5 comes after 2; the line is skipped",
    ]


@pytest.mark.parametrize("batch_size", [1, 8])
def test_a_series_that_changes_its_columns_is_reported(tmp_path, batch_size):
    records = [record(1, s="x"), {"a": 1, "b": 1, "d": 1, "s": "x"}, {"a": 1, "s": "y"}, record(2, s="x")]
    run = Run(
        as_lines(records),
        tmp_path,
        reader={"series_column": "s"},
        stream={"engine_options": EngineOptions(batch_size=batch_size)},
    )
    assert run.said == [
        "stdin: line 2: the columns of series 'x' have changed: column 'c' is missing among 'a', 'b', 'd', 's'; the "
        "line is skipped",
        "stdin: line 3: column 'b' is missing among 'a', 's'; the line is skipped",
    ]
    assert [answer["row"] for answer in run.answers] == [0, 3]


def test_a_stream_of_one_series_that_changes_its_columns_is_reported(tmp_path):
    run = Run(as_lines([record(1), {"a": 1, "b": 2}]), tmp_path)
    assert run.said[0].startswith("stdin: line 2: the columns have changed: column 'c' is missing")


def test_joined_csv_files_are_read_by_the_header_above(tmp_path):
    text = b"a,b,c\n" + b"1,0,0\n" * N + b"b,c,a\n" + b"0,0,9\n"
    run = Run(text, tmp_path)
    assert [answer["score"] for answer in run.answers[N - 1 :]] == [1, 9]
    assert run.said == [f"stdin: line {N + 2}: the columns change to 'b', 'c', 'a'"]


def test_dropped_series_are_said(tmp_path):
    records = [record(1, s=i) for i in range(5)]
    options = {"max_series": 2, "engine_options": EngineOptions(batch_size=4)}
    run = Run(as_lines(records), tmp_path, reader={"series_column": "s"}, stream=options)
    end = "dropped, least recently seen of more than 2; it begins again if it comes back; raise `max_series` to keep"
    assert run.said == [f"series 0 and 1 more: {end} more", f"series 2: {end} more"]
    assert run.watch.tally.dropped_series == 3


@pytest.mark.parametrize(("expected", "share", "said"), [(0.01, 0.2, True), (0.01, 0.04, False), (None, 1.0, False)])
def test_many_more_anomalies_than_the_threshold_was_made_for_are_said_once(tmp_path, expected, share, said):
    records = [record(101 if i % 100 < 100 * share else 0) for i in range(2500)]
    run = Run(as_lines(records), tmp_path, parts=LoopParts(expected_share=expected))
    assert len(run.said) == said
    if said:
        assert re.match(
            r"note: [\d.]+% of the first 10\d\d scored rows are anomalous, the threshold was made for 0.01 of",
            run.said[0],
        )


@pytest.mark.parametrize("name", ["row", "score", "is_anomaly"])
def test_a_carried_column_cannot_take_the_name_of_an_answer(tmp_path, name):
    with pytest.raises(ConfigError, match=f"column '{name}': is the time or series column and a field of the output"):
        Run(b"", tmp_path, reader={"series_column": name})


@pytest.mark.parametrize("delay", [-1.0, float("nan"), float("inf")])
def test_a_delay_that_is_no_time_is_refused(delay):
    with pytest.raises(ConfigError, match="max_delay_s: "):
        WatchOptions(max_delay_s=delay)


def test_a_row_waits_as_long_in_python_as_on_the_command_line():
    options = {one.name: one for one in get_command(app).commands["watch"].params}  # type: ignore[attr-defined]
    assert options["max_delay_ms"].default == 1000 * WatchOptions().max_delay_s


class Script:
    """Lines that come at given times of a clock that goes on only while somebody waits."""

    name = "script"

    def __init__(self, arrivals: dict[float, bytes]) -> None:
        self.arrivals, self.now, self.line = dict(sorted(arrivals.items())), 0.0, 1

    def monotonic(self) -> float:
        return self.now

    def read(self, timeout_s: float) -> Block | None:
        if not self.arrivals:
            return None
        due = next(iter(self.arrivals))
        if due > self.now + timeout_s:
            self.now += timeout_s
            return Block([], self.line)
        self.now = max(self.now, due)
        lines = self.arrivals.pop(due).splitlines()
        self.line += len(lines)
        return Block(lines, self.line - len(lines))


class TimedOutput(io.BytesIO):
    """Notes when rows were answered."""

    def __init__(self, script: Script) -> None:
        super().__init__()
        self.script, self.answered = script, []

    def write(self, text) -> int:
        self.answered.append((self.script.now, text.count(b"\n")))
        return super().write(text)


def answered(monkeypatch, arrivals: dict[float, bytes], *, batch_size: int, max_delay_s: float) -> list:
    script = Script(arrivals)
    monkeypatch.setattr(watch_module.time, "monotonic", script.monotonic)
    out = TimedOutput(script)
    stream = StreamScorer(FirstColumn(), engine_options=EngineOptions(batch_size=batch_size))
    options = WatchOptions(max_delay_s=max_delay_s)
    Watch(script, RowReader(["a", "b", "c"]), stream, out, print, options).run(lambda: False)
    return out.answered


ROW = as_lines([record(1)])


def test_a_row_waits_for_others_but_not_longer_than_it_may(monkeypatch):
    arrivals = {1.0: ROW, 1.02: ROW, 1.04: 2 * ROW, 2.0: ROW, 9.0: ROW}
    found = answered(monkeypatch, arrivals, batch_size=8, max_delay_s=0.05)
    assert [(pytest.approx(when), count) for when, count in found] == [(1.05, 4), (2.05, 1), (9.0, 1)]


def test_a_full_batch_does_not_wait(monkeypatch):
    found = answered(monkeypatch, {1.0: 5 * ROW, 1.01: ROW, 5.0: ROW}, batch_size=3, max_delay_s=1.0)
    assert [(pytest.approx(when), count) for when, count in found] == [(1.0, 3), (1.01, 3), (5.0, 1)]


def test_without_a_delay_what_came_together_is_answered_together(monkeypatch):
    found = answered(monkeypatch, {1.0: 2 * ROW, 1.001: ROW, 5.0: ROW}, batch_size=8, max_delay_s=0.0)
    assert found == [(1.0, 2), (1.001, 1), (5.0, 1)]


def test_a_full_disk_under_stdout_is_one_clear_sentence(tmp_path):
    class Full(io.BytesIO):
        def flush(self) -> None:
            raise OSError(28, "No space left on device")

    loop = Watch(Script({0.0: ROW}), RowReader(["a", "b", "c"]), StreamScorer(FirstColumn()), Full(), print)
    with pytest.raises(OutputError, match=r"stdout: cannot be written \(No space left on device\)"):
        loop.run(lambda: False)


def test_a_state_that_cannot_be_written_now_does_not_stop_the_stream(tmp_path):
    folder = tmp_path / "gone"
    said: list[str] = []
    out = io.BytesIO()
    script = Script({0.0: ROW, 0.1: ROW})
    script.position = lambda: None  # type: ignore[attr-defined]
    loop = Watch(
        script,
        RowReader(["a", "b", "c"]),
        StreamScorer(FirstColumn()),
        out,
        said.append,
        WatchOptions(state=folder / "state", state_interval_s=0.0),
    )
    with pytest.raises(OutputError, match="could not be written"):  # at the end it is an error
        loop.run(lambda: False)
    assert len(out.getvalue().splitlines()) == 2
    assert all("could not be written" in text and text.endswith("; going on without") for text in said)
    assert said


# The command

SMOOTH = checkpoint().score.smooth


@pytest.fixture(scope="module")
def table() -> pl.DataFrame:
    """Interleaved rows of three series, with time."""
    count = 3 * (2 * WINDOW)
    return rows(count, t=[i // 3 for i in range(count)], s=["x", "y", "z"] * (count // 3))


def json_lines(frame: pl.DataFrame) -> str:
    return frame.write_ndjson()


def command(engine: Path, *words: object) -> list[str]:
    watch = ["watch", "--engine", engine, "--threads", 1, "--series-column", "s", "--time-column", "t", *words]
    return [str(programs() / "at-infer"), *map(str, watch)]


def watched(engine: Path, text: str | bytes, *words: object) -> Answer:
    data = text.encode() if isinstance(text, str) else text
    done = subprocess.run(command(engine, *words), input=data, capture_output=True, check=False)
    return Answer(done.returncode, done.stdout.decode(), done.stderr.decode())


def parsed(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def refused(answer: Answer) -> str:
    assert (answer.code, answer.out) == (1, ""), answer
    assert re.fullmatch(r"error: [^\n]+\n", answer.err), answer.err
    return answer.err.removeprefix("error: ").rstrip()


@pytest.mark.slow
def test_scores_equal_those_of_the_file_scored_as_a_live_system_would(models, table, score, tmp_path):
    engine = models / "model.onnx"
    options = {"delay": 5, "threshold": 0.5}
    file = score(
        table.sort("s", "t"), engine=engine, align="last", series_column="s", time_column="t", threads=1, **options
    )
    answers = {}
    words = ["--delay", 5, "--threshold", 0.5]
    for text in (json_lines(table), table.select("s", *reversed(COLUMNS), "t").write_csv()):
        answer = watched(engine, text, *words)
        assert answer.code == 0, answer.err
        found = parsed(answer.out)
        assert sorted(one["row"] for one in found) == list(range(len(table)))
        answers = {(one["s"], int(one["t"])): one for one in found}
        expected = file.frame.to_dicts()
        assert len(expected) == len(answers)
        for row in expected:
            one = answers[row["s"], row["t"]]
            assert (one["score"] is None) == (row["score"] is None)
            if row["score"] is not None:
                assert one["score"] == pytest.approx(row["score"], abs=1e-6)
                assert one["is_anomaly"] == row["is_anomaly"] or abs(row["score"] - 0.5) < 1e-5
    anomalies = sum(one["is_anomaly"] for one in answers.values())
    scored = sum(one["score"] is not None for one in answers.values())
    assert anomalies
    summary = f"{len(table)} rows of 3 series: {scored} scored, {anomalies} anomalous, 0 bad lines; threshold 0.5\n"
    assert answer.err == summary


@pytest.mark.slow
def test_time_and_series_columns_of_the_training_are_expected_unless_told_otherwise(edited, table):
    engine = edited(time_column="t", series_column="s")
    base = [str(programs() / "at-infer"), "watch", "--engine", str(engine), "--threads", "1"]
    text = json_lines(table.head(4)).encode()
    done = subprocess.run(base, input=text, capture_output=True, check=True)
    assert [list(one) for one in parsed(done.stdout.decode())] == [["row", "s", "t", "score", "is_anomaly"]] * 4
    plain = json_lines(table.head(4).drop("t", "s")).encode()
    done = subprocess.run([*base, "--no-time", "--one-series"], input=plain, capture_output=True, check=True)
    assert [list(one) for one in parsed(done.stdout.decode())] == [["row", "score", "is_anomaly"]] * 4


class Live:
    """A watch that is running; lines go in and come out one by one."""

    def __init__(self, engine: Path, *words: object) -> None:
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(command(engine, *words), stdin=pipe, stdout=pipe, stderr=pipe, text=True)

    def put(self, text: str) -> None:
        self.process.stdin.write(text)
        self.process.stdin.flush()

    def get(self, count: int) -> list[dict[str, Any]]:
        return [json.loads(self.process.stdout.readline()) for _ in range(count)]

    def end(self, number: signal.Signals | None = None) -> Answer:
        if number is not None:
            self.process.send_signal(number)
        out, err = self.process.communicate(timeout=600)
        return Answer(self.process.returncode, out, err)


@pytest.fixture
def live(models: Path) -> Iterator[Callable[..., Live]]:
    """Start processes that do not outlive the test."""
    started: list[Live] = []

    def start(*words: object, engine: Path = models / "model.onnx") -> Live:
        started.append(Live(engine, *words))
        return started[-1]

    yield start
    for one in started:
        one.process.kill()
        one.process.wait()
        for pipe in (one.process.stdin, one.process.stdout, one.process.stderr):
            pipe.close()


@pytest.mark.slow
def test_answers_come_while_the_pipe_stays_open(live, table):
    process = live("--max-delay-ms", 0)
    for part in (table.head(2), table.slice(2, 1), table.slice(3, 4)):
        process.put(json_lines(part))
        assert [one["t"] for one in process.get(len(part))] == part["t"].to_list()
    assert process.end().code == 0


@pytest.mark.slow
@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
def test_a_signal_flushes_what_is_pending(live, table, tmp_path, number, code):
    process = live("--max-delay-ms", 1e9, "--batch-size", 1000, "--state", tmp_path / "state")
    process.put(json_lines(table.head(70)) + "nonsense\n")
    assert process.process.stderr.readline().startswith("stdin: line 71: is not JSON")  # so the rows above were read
    answer = process.end(number)
    found = parsed(answer.out)
    assert [one["row"] for one in found] == list(range(70))
    assert sum(one["score"] is not None for one in found) == 70 - 3 * (WINDOW - 1)
    summary = "70 rows of 3 series: 13 scored, "
    assert answer.err.startswith(summary if code == 0 else f"interrupted: {summary}"), answer.err
    assert (answer.code, answer.err.count("\n")) == (code, 1)
    assert (tmp_path / "state").exists()


@pytest.mark.slow
def test_a_closed_pipe_ends_it_quietly(live, table):
    process = live("--max-delay-ms", 0)
    process.put(json_lines(table.head(3)))
    process.get(3)
    process.process.stdout.close()
    process.put(json_lines(table.slice(3, 3)))
    code = process.process.wait(timeout=600)
    assert (code, process.process.stderr.read()) == (0, "")


@pytest.mark.slow
def test_a_full_disk_is_one_line_and_exit_code_1(models, table):
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            command(models / "model.onnx"),
            input=json_lines(table.head(2)),
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert (done.returncode, done.stderr) == (1, "error: stdout: could not be written (No space left on device)\n")


@pytest.mark.slow
def test_a_followed_file_may_grow_be_rotated_and_be_truncated(live, table, tmp_path):
    log = tmp_path / "log.csv"
    header, *lines = table.write_csv().splitlines(keepends=True)
    log.write_text(header + "".join(lines[:4]) + lines[4][:5])
    process = live("--follow", log, "--max-delay-ms", 0)
    assert [one["row"] for one in process.get(4)] == [0, 1, 2, 3]
    with log.open("a") as file:
        file.write(lines[4][5:])
    process.get(1)
    log.rename(tmp_path / "log.csv.1")
    with (tmp_path / "log.csv.1").open("a") as file:  # its writer has not noticed yet
        file.write(lines[5])
    process.get(1)
    log.write_text(header + lines[6] + "oops\n")
    process.get(1)
    assert process.process.stderr.readline() == f"{log}: was replaced; reading the new file\n"
    assert process.process.stderr.readline().startswith(f"{log}: line 3: has 1 fields")
    log.write_text("")
    assert process.process.stderr.readline() == f"{log}: was truncated; reading it from its start\n"
    log.write_text(header + "".join(lines[7:9]))
    assert [one["row"] for one in process.get(2)] == [8, 9]
    answer = process.end(signal.SIGTERM)
    assert (answer.code, answer.out) == (0, "")
    assert answer.err.startswith("9 rows of 3 series: 0 scored")


@pytest.mark.slow
def test_with_a_state_a_restart_scores_on_as_if_nothing_had_happened(models, table, tmp_path):
    engine, state = models / "model.onnx", tmp_path / "state"
    words = ["--threshold", 1.0]
    whole = parsed(watched(engine, json_lines(table), *words).out)
    found = []
    for first, last in ((0, 50), (50, 77), (77, len(table))):
        answer = watched(engine, json_lines(table.slice(first, last - first)), *words, "--state", state)
        assert answer.code == 0, answer.err
        found += parsed(answer.out)
    assert [one["row"] for one in found] == list(range(len(table)))
    for one, expected in zip(found, whole, strict=True):
        assert one["score"] == pytest.approx(expected["score"], abs=1e-6)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["state"]


@pytest.mark.slow
def test_a_killed_follower_goes_on_from_its_state_without_losing_a_row(live, models, table, tmp_path):
    log, state = tmp_path / "log.jsonl", tmp_path / "state"
    lines = json_lines(table).splitlines(keepends=True)
    log.write_text("".join(lines[:30]))
    words = ["--follow", log, "--state", state, "--state-interval", 0, "--max-delay-ms", 0]
    first = live(*words)
    before = first.get(30)
    while not state.exists() or json.loads(state.read_bytes().split(b"\n")[0])["extra"]["row"] < 30:
        assert first.process.poll() is None
        time.sleep(0.01)
    assert first.end(signal.SIGKILL).code == -signal.SIGKILL
    log.rename(tmp_path / "log.jsonl.1")
    with (tmp_path / "log.jsonl.1").open("a") as file:
        file.write("".join(lines[30:90]))
    log.write_text("".join(lines[90:]))
    second = live(*words)
    after = second.get(len(table) - 30)
    answer = second.end(signal.SIGTERM)
    assert (answer.code, answer.out) == (0, "")
    found = before + after
    assert [one["row"] for one in found] == list(range(len(table)))
    assert [one["t"] for one in found] == table["t"].to_list()
    expected = StreamScorer(models / "model.onnx", engine_options=EngineOptions(threads=1)).push_many(
        table.select(COLUMNS).to_numpy(), table["s"]
    )
    scores = [np.nan if one["score"] is None else one["score"] for one in found]
    np.testing.assert_allclose(scores, expected.score, atol=1e-6)


@pytest.mark.slow
def test_the_state_of_another_model_is_refused_with_one_line(models, table, edited, tmp_path):
    state = tmp_path / "state"
    text = json_lines(table.head(3))
    assert watched(models / "model.onnx", text, "--state", state).code == 0
    kept = state.read_bytes()
    other = edited(checkpoint_sha256="1" * 64)
    message = refused(watched(other, text, "--state", state))
    assert message == f"{state}: belongs to another model; give its --engine, or another --state"
    assert state.read_bytes() == kept


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--threads", "0"], "--threads: 0 is too small; at least 1"),
        (["--one-series"], "--one-series: excludes --series-column; give one of them"),
        (["--no-time"], "--no-time: excludes --time-column; give one of them"),
        (["--from-end"], "--from-end: needs --follow; stdin is always read from its start"),
        (["--state-interval", "-1"], "--state-interval: -1 s is negative or not a number; give 0 or more"),
        (["--threshold", "high"], "--threshold: 'high' is neither a number nor auto"),
        (["--every", "0"], "--every: 0 is too small; at least 1"),
        (["--max-series", "0"], "--max-series: 0 is too small; at least 1"),
        (["--max-delay-ms", "-5", "--follow", "log"], "--max-delay-ms: -5 ms is not a duration; give 0 or more"),
        (["--follow", "absent"], "absent: no such file; it must exist at the start"),
        (["--header", "s,t"], "--header: column 'f00' is missing among 's', 't'; name every column of a line"),
        (["--state", "folder"], "folder: is a folder; give a file name"),
        (
            ["--smooth", str(SMOOTH + 1)],
            "--smooth: mode fusion smooths and normalises by itself; leave it out, or name a mode",
        ),
    ],
)
def test_options_that_cannot_work_are_one_line(run_cli, models, tmp_path, monkeypatch, words, message):
    monkeypatch.chdir(tmp_path)
    Path("log").touch()
    Path("folder").mkdir()
    base = ["watch", "--engine", models / "model.onnx", "--series-column", "s", "--time-column", "t"]
    assert refused(run_cli(*base, *words)).startswith(message)


@pytest.mark.slow
def test_a_closed_stdin_is_one_line(models):
    _, *words = command(models / "model.onnx")
    done = subprocess.run(
        ["sh", "-c", 'exec "$@" <&-', "sh", sys.executable, "-m", "at_infer", *words],
        capture_output=True,
        text=True,
        check=False,
    )
    assert refused(Answer(done.returncode, done.stdout, done.stderr)).startswith("stdin: is closed")
