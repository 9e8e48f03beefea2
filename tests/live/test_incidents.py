"""Incidents of a stream: events on stdout, by webhook and command, and through restarts."""

import json
import signal
import socket
import sys
import threading
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from at_infer import ScoreOptions, StreamScorer
from at_infer.incidents.rules import IncidentRules
from at_infer.live.incidents import LiveIncidents
from at_infer.live.kept import Kept
from at_infer.live.options import WatchOptions
from at_infer.live.tally import Tally
from at_infer.live.watch import LoopParts
from tests.checkpoints import WINDOW
from tests.first_column import FirstColumn, N, rows_of
from tests.live.receiver import Receiver
from tests.live.test_watch import Live, Run, as_lines, json_lines, live, parsed, record, watched  # noqa: F401
from tests.scored import rows

RULES = IncidentRules(open_at=100.0, close_at=50.0)


class Tracked(Run):
    """A loop that tracks incidents, a row being as bad as its first value."""

    def __init__(self, values: list[float], tmp_path: Path, *, names: list[str] | None = None, **options: Any) -> None:
        self.counts = Tally()
        stream = StreamScorer(FirstColumn(), ScoreOptions(threshold=100.0), max_series=options.pop("max_series", 10))
        incidents = LiveIncidents(stream, RULES, self.counts)
        records = [record(value, **({} if names is None else {"s": names[i]})) for i, value in enumerate(values)]
        reader = {} if names is None else {"series_column": "s"}
        super().__init__(
            as_lines([record(0, **({} if names is None else {"s": s})) for s in sorted(set(names or [""])) * N])
            + as_lines(records),
            tmp_path,
            reader=reader,
            stream={"max_series": stream.max_series},
            options=WatchOptions(only="incidents"),
            parts=LoopParts(tally=self.counts, incidents=incidents),
            **options,
        )


def brief(events: list[dict[str, Any]]) -> list[tuple[str, int, int, float]]:
    return [(one["event"], one["begin"], one["end"], one["peak_score"]) for one in events]


def test_a_line_comes_when_an_incident_opens_gets_worse_and_closes(tmp_path):
    run = Tracked([0, 110, 120, 300, 60, 10, 0, 0], tmp_path)
    first = N + 1  # times are numbers of rows, as there is no time column
    assert brief(run.answers) == [
        ("opened", first, first, 110.0),
        ("worse", first, first + 2, 300.0),
        ("closed", first, first + 3, 300.0),
    ]
    assert len({one["id"] for one in run.answers}) == 1
    assert (run.counts.events, run.counts.incidents_open) == ({"opened": 1, "worse": 1, "closed": 1}, 0)
    assert run.counts.rows == N + 8


def test_what_is_open_at_the_end_is_told_as_it_is(tmp_path):
    run = Tracked([0, 110, 120], tmp_path)
    assert [(one["event"], one["state"]) for one in run.answers] == [("opened", "open"), ("closed", "open")]
    assert run.counts.incidents_open == 0


def test_series_have_incidents_of_their_own(tmp_path):
    run = Tracked([110, 0, 120, 130], tmp_path, names=["x", "y", "x", "y"])
    assert [(one["event"], one["series"]) for one in run.answers[:2]] == [("opened", "x"), ("opened", "y")]


def test_the_incident_of_a_series_that_is_dropped_ends():
    stream = StreamScorer(FirstColumn(), ScoreOptions(threshold=100.0), max_series=1)
    incidents, found = LiveIncidents(stream, RULES, Tally()), []
    for name in ("a", "b"):
        pushed = stream.push_many(rows_of([200] * N), [name] * N, tags=[(i, name) for i in range(N)])
        found += incidents.add(pushed, by_series=True, by_time=False)
    assert [(event.kind, event.incident.series) for event in found] == [
        ("opened", "a"),
        ("closed", "a"),
        ("opened", "b"),
    ]
    assert list(incidents.trackers) == ["b"]


def test_a_state_of_before_incidents_were_tracked_has_none():
    assert Kept.from_dict({"row": 7, "position": None}) == Kept(row=7)


# The command


def shaken(first: int, last: int, *, count: int = 16 * WINDOW) -> pl.DataFrame:
    """One series, some of whose rows are far from anything known."""
    frame = rows(count, t=list(range(count)), s=["pump 7"] * count)
    far = pl.when(pl.col("t").is_between(first, last - 1)).then(40.0).otherwise(0.0).cast(pl.Float32)
    return frame.with_columns(f01=pl.col("f01") + far)


TABLE = shaken(50, 90)
HIGH = ["--threshold", 3.0]


@pytest.fixture(scope="module")
def whole(models: Path) -> list[dict[str, Any]]:
    """Events of the table in one run."""
    answer = watched(models / "model.onnx", json_lines(TABLE), *HIGH, "--only", "incidents")
    assert answer.code == 0, answer.err
    assert ", 1 incident (0 open), 0 bad lines" in answer.err
    return parsed(answer.out)


@pytest.mark.slow
def test_an_incident_says_where_when_how_bad_and_why(whole):
    assert [one["event"] for one in whole if one["event"] != "worse"] == ["opened", "closed"]
    last = whole[-1]
    assert last["series"] == "pump 7"
    assert 50 <= last["begin"] <= 60
    assert last["ratio"] > 1
    assert last["causes"][0]["feature"] == "f01"
    assert last["causes"][0]["view"]


@pytest.mark.slow
def test_a_restart_in_the_middle_of_an_incident_keeps_its_id_and_does_not_open_it_again(models, whole, tmp_path):
    found = []
    for part in (TABLE[:70], TABLE[70:80], TABLE[80:]):
        words = [*HIGH, "--only", "incidents", "--state", tmp_path / "state"]
        answer = watched(models / "model.onnx", json_lines(part), *words)
        assert answer.code == 0, answer.err
        found.append(parsed(answer.out))
    assert [one["event"] for one in found[0]][:1] == ["opened"]
    together = [one for part in found for one in part]
    assert [(one["event"], one["id"]) for one in together] == [(one["event"], one["id"]) for one in whole]
    assert together[-1]["begin"] == whole[-1]["begin"]
    assert together[-1]["causes"][0]["share"] == pytest.approx(whole[-1]["causes"][0]["share"], abs=1e-4)


@pytest.mark.slow
def test_rules_are_options_and_a_start_with_others_says_so(models, whole, tmp_path):
    words = ["--threshold", 3.0, "--only", "incidents", "--state", tmp_path / "state"]
    first = watched(models / "model.onnx", json_lines(TABLE[:70]), *words)
    assert [one["event"] for one in parsed(first.out)][:1] == ["opened"]
    second = watched(models / "model.onnx", json_lines(TABLE[70:]), *words, "--cool-down-rows", 500)
    assert parsed(second.out)[-1]["id"] == whole[-1]["id"]  # what is open goes on
    assert "state: its incidents were made by other rules; from now on an incident opens above 3, " in second.err
    assert "; none opens for 500 rows after it" in second.err
    long = watched(models / "model.onnx", json_lines(TABLE), *words[:-2], "--min-rows", 5000)
    assert (parsed(long.out), long.code) == ([], 0)
    refused = watched(models / "model.onnx", "", "--min-rows", 5)
    assert refused.err.startswith("error: --min-rows: is a rule for incidents, which are off; add --only incidents")


@pytest.mark.slow
def test_a_killed_watch_repeats_events_by_the_same_id_only(live, whole, tmp_path):  # noqa: F811
    log, state = tmp_path / "log.jsonl", tmp_path / "state"
    lines = json_lines(TABLE).splitlines(keepends=True)
    log.write_text("".join(lines[:45]))
    words = [*HIGH, "--only", "incidents", "--follow", log, "--state", state, "--max-delay-ms", 0]
    first: Live = live(*words, "--state-interval", 0)
    while not state.exists() or json.loads(state.read_bytes().split(b"\n")[0])["extra"]["row"] < 45:
        assert first.process.poll() is None
    with log.open("a") as file:
        file.write("".join(lines[45:75]))
    (opened,) = first.get(1)
    first.end(signal.SIGKILL)
    with log.open("a") as file:
        file.write("".join(lines[75:]))
    second: Live = live(*words)
    found = [opened]
    while found[-1]["event"] != "closed":
        found += second.get(1)
    assert {one["id"] for one in found} == {whole[0]["id"]}
    assert second.end(signal.SIGTERM).code == 0


@pytest.mark.slow
def test_a_webhook_and_a_command_are_told_the_same_as_stdout(models, whole, tmp_path):
    script = tmp_path / "note.py"
    script.write_text(f"import sys\nopen({str(tmp_path / 'notes')!r}, 'a').write(sys.stdin.read())\n")
    with Receiver(500, 200) as receiver:
        words = ["--webhook", receiver.url, "--on-incident", f"{sys.executable} {script}"]
        answer = watched(models / "model.onnx", json_lines(TABLE), *HIGH, *words)
    assert answer.code == 0, answer.err
    assert len(parsed(answer.out)) == len(TABLE)
    assert parsed((tmp_path / "notes").read_text()) == whole
    assert receiver.got[1:] == whole
    assert "(answer 500); trying again" in answer.err
    assert "secret" not in answer.err


@pytest.mark.slow
def test_a_slow_receiver_holds_up_no_row(live, whole):  # noqa: F811
    hold = threading.Event()
    with Receiver(hold=hold) as receiver:
        process: Live = live(*HIGH, "--webhook", receiver.url, "--webhook-format", "slack", "--max-delay-ms", 0)
        process.put(json_lines(TABLE))
        assert len(process.get(len(TABLE))) == len(TABLE)  # all, while the receiver has not answered once
        (first,) = receiver.wait(lambda got: len(got) == 1)
        assert first["text"].startswith(f"Incident {whole[0]['id']} on pump 7 opened: ")
        hold.set()
        answer = process.end()
    assert (answer.code, len(receiver.got)) == (0, len(whole))


@pytest.mark.slow
def test_a_dead_receiver_is_said_at_once_and_again_at_the_end(models, whole):
    with socket.create_server(("127.0.0.1", 0)) as gone:
        port = gone.getsockname()[1]
    words = ["--webhook", f"http://127.0.0.1:{port}/secret", "--only", "incidents"]
    answer = watched(models / "model.onnx", json_lines(TABLE), *HIGH, *words)
    assert (answer.code, parsed(answer.out)) == (0, whole)
    said = answer.err.splitlines()
    refused = "an event of an incident was not delivered (Connection refused); trying again"
    assert said[0] == f"webhook 127.0.0.1:{port}: {refused}"
    assert said[1] == f"webhook 127.0.0.1:{port}: {len(whole)} events of incidents not delivered before the end"
    assert len(said) == 3


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["--webhook", "example.com/secret"],
            "--webhook: is not a URL of a web server; give http://... or https://...",
        ),
        (["--on-incident", "no-such"], "--on-incident: 'no-such' is not a command that can be run here"),
        (["--metrics", "9464"], "--metrics: '9464' is not [HOST]:PORT; give for example --metrics :9464"),
    ],
)
def test_options_that_cannot_work_are_one_line(run_cli, models, words, message):
    answer = run_cli("watch", "--engine", models / "model.onnx", *words)
    assert (answer.code, answer.out) == (1, "")
    assert answer.err.startswith(f"error: {message}")
    assert answer.err.count("\n") == 1
