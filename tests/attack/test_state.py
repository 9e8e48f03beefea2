"""A state of `watch` with hostile values, and the right checksum, is one line or goes on."""

import json
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from at_infer import ScoreOptions, StreamScorer
from at_infer.errors import AtInferError, DataError
from at_infer.incidents.defaults import rules_of_scorer
from at_infer.incidents.rules import IncidentRules
from at_infer.live.incidents import LiveIncidents
from at_infer.live.kept import Kept
from at_infer.live.options import WatchOptions
from at_infer.live.state import values_of
from at_infer.live.tally import Tally
from at_infer.live.watch import LoopParts
from tests.first_column import FirstColumn, N
from tests.live.test_watch import Run, as_lines, record
from tests.scored import rows

HOSTILE = (None, True, -1, "x", {}, [[1]], 2**62)
NOW = {"first_row": 50, "last_row": 59, "last": 59, "peak_row": 55, "peak": 55, "peak_score": 2.0, "rows": 9}
NOW |= {"begin_row": 50, "begin": 50, "announced": 1.5, "in_gap": False, "blame": []}
OUTAGE = {"feature": "f00", "model": "m", "begin": 1, "begin_row": 1, "end": 2, "end_row": 2, "is_open": True}
OPEN = {"tracker": {"number": 60, "quiet_until": 0, "now": NOW}, "outages": {"number": 60, "known": [OUTAGE]}}
EXTRA = {
    "row": 60,
    "position": {"inode": 1, "head": [3, 4], "offset": 10, "lines": 2},
    "incidents": [{"series": "a", "model": "m", **OPEN}],
}


@pytest.fixture
def stream(models: Path) -> Iterator[StreamScorer]:
    options = ScoreOptions(align="last", explain="top", threshold=0.0)
    with StreamScorer(models / "model.onnx", options) as opened:
        yield opened


def places(value: Any, above: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Paths to all values inside, those of long lists but once."""
    yield above
    inside = value.items() if isinstance(value, dict) else enumerate(value[:1]) if isinstance(value, list) else ()
    for name, one in inside:
        yield from places(one, (*above, name))


def go_on(stream: StreamScorer, path: Path) -> None:
    """As `watch` does."""
    extra = stream.load(path)
    tracked = LiveIncidents(stream, rules_of_scorer(stream.scorer), Tally())
    with values_of(path):
        kept = Kept.from_dict(extra)
        tracked.recall(kept.incidents)
    pushed = stream.push_many(rows(30, seed=1).to_numpy(), ["a"] * 30, tags=[(row, "a") for row in range(30)])
    tracked.add(pushed, by_series=True, by_time=False)
    tracked.end()


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # a score of 4e18
@pytest.mark.slow
def test_hostile_values_of_a_state_are_one_line_or_go_on(stream: StreamScorer, tmp_path: Path) -> None:
    path = tmp_path / "state"
    stream.push_many(rows(60).to_numpy(), ["a"] * 60)
    stream.save(path, EXTRA)
    line, _, rest = path.read_bytes().partition(b"\n")
    go_on(stream, path)
    refused, bugs = 0, []
    for part in ("extra", "series"):
        for place in places(json.loads(line)[part]):
            for value in HOSTILE:
                head = json.loads(line)
                at, *steps = head, part, *place
                for step in steps[:-1]:
                    at = at[step]
                at[steps[-1]] = value
                content = json.dumps(head).encode() + b"\n" + rest[:-4]
                path.write_bytes(content + zlib.crc32(content).to_bytes(4, "little"))
                try:
                    go_on(stream, path)
                except AtInferError:
                    refused += 1
                except Exception as error:
                    bugs.append(f"{steps} {value!r}: {type(error).__name__}: {error}")
    assert not bugs, "\n".join(bugs)
    assert refused > 200


ODD_NAMES = ("\ud800", True, int("9" * 400), "x" * 5_000)


def test_a_name_that_no_state_can_hold_is_a_bad_line(tmp_path: Path) -> None:
    """It could be written, and then nobody could go on from there; half of a surrogate pair ended the process."""
    stream = StreamScorer(FirstColumn(), ScoreOptions(threshold=100.0))
    lines = as_lines([record(200, s=name) for _ in range(N + 1) for name in ("a", *ODD_NAMES)])
    tracked = LiveIncidents(stream, IncidentRules(open_at=100.0, close_at=50.0), Tally())
    state = tmp_path / "state"
    options, parts = WatchOptions(state=state, only="incidents"), LoopParts(incidents=tracked)
    run = Run(lines, tmp_path, reader={"series_column": "s"}, options=options, parts=parts)
    assert [one["series"] for one in run.answers] == ["a"]
    assert run.watch.tally.bad_lines == len(ODD_NAMES) * (N + 1)
    stream.load(state)
    assert list(stream.series) == ["a"]


def test_a_state_is_not_written_with_a_name_that_it_cannot_hold(tmp_path: Path) -> None:
    for name in ODD_NAMES:
        stream = StreamScorer(FirstColumn())
        stream.push(dict.fromkeys("abc", 0.0), series=name)
        with pytest.raises(DataError, match="cannot keep a series named"):
            stream.save(tmp_path / "state")
