"""A feature without values is an incident: opened after a while, closed when it is back."""

import json
from collections.abc import Iterable
from dataclasses import asdict
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from at_infer import EngineOptions, ScoreOptions, StreamScorer
from at_infer.incidents.outages import OUTAGE_ROWS
from at_infer.incidents.rules import IncidentRules
from at_infer.incidents.tracker import Event
from at_infer.live.incidents import KeptTracker, LiveIncidents
from at_infer.live.notices import notice
from at_infer.live.tally import Tally
from at_infer.models.spacing import Spacing
from tests.live.test_watch_clock import watched
from tests.scored import COLUMNS, Edit, rows, values

RULES = IncidentRules(open_at=1e9, close_at=1e9)
MASK = ScoreOptions(on_missing_feature="mask", threshold=1e9)
START = datetime(2024, 1, 1)


def empty(frame: pl.DataFrame, name: str, first: int, end: int) -> pl.DataFrame:
    gone = pl.int_range(pl.len()).is_between(first, end - 1)
    return frame.with_columns(pl.when(gone).then(None).otherwise(pl.col(name)).alias(name))


def brief(events: Iterable[Event]) -> list[tuple[Any, ...]]:
    shown = [notice(event) for event in events]
    assert all(one["kind"] == "missing feature" and one["ratio"] is None for one in shown)
    names = ("event", "series", "state", "begin", "end", "begin_row", "end_row")
    return [(*(one[name] for name in names), one["causes"][0]["feature"]) for one in shown]


class Tracked:
    """Rows of one series into a stream and its incidents."""

    def __init__(self, model: Path, **options: Any) -> None:
        self.stream = StreamScorer(model, MASK, EngineOptions(batch_size=1), **options)
        self.tally = Tally()
        self.incidents = LiveIncidents(self.stream, RULES, self.tally)

    def push(self, frame: pl.DataFrame, first: int = 0, series: str = "x") -> list[Event]:
        tags = [(first + i, series) for i in range(frame.height)]
        pushed = self.stream.push_many(values(frame), [series] * frame.height, tags=tags)
        return self.incidents.add(pushed, by_series=True, by_time=False)


def test_it_opens_after_a_while_and_closes_with_the_value_that_is_back(models: Path) -> None:
    tracked = Tracked(models / "model.onnx")
    frame = empty(empty(rows(300), "f01", 100, 200), "f02", 150, 150 + OUTAGE_ROWS - 1)
    opened = tracked.push(frame[:180])
    assert brief(opened) == [("opened", "x", "open", 100, 99 + OUTAGE_ROWS, 100, 99 + OUTAGE_ROWS, "f01")]
    assert tracked.tally.incidents_open == 1
    closed = tracked.push(frame[180:], 180)
    assert brief(closed) == [("closed", "x", "closed", 100, 199, 100, 199, "f01")]
    assert closed[0].incident.id == opened[0].incident.id
    assert (tracked.tally.incidents_open, tracked.tally.events["opened"]) == (0, 1)


@pytest.mark.slow
def test_a_restart_opens_nothing_twice(models: Path, tmp_path: Path) -> None:
    frame, found = empty(rows(300), "f01", 100, 250), list[Event]()
    kept: list[Any] = []
    for first in range(0, 300, 30):
        tracked = Tracked(models / "model.onnx")
        if first:
            tracked.stream.load(tmp_path / "state")
            tracked.incidents.recall([KeptTracker(**one) for one in json.loads(json.dumps(kept))])
        found += tracked.push(frame[first : first + 30], first)
        tracked.stream.save(tmp_path / "state")
        kept = [asdict(one) for one in tracked.incidents.remember()]
    assert brief(found) == [
        ("opened", "x", "open", 100, 99 + OUTAGE_ROWS, 100, 99 + OUTAGE_ROWS, "f01"),
        ("closed", "x", "closed", 100, 249, 100, 249, "f01"),
    ]


@pytest.mark.parametrize("how", ["end", "dropped"])
def test_what_is_missing_at_the_end_is_told_as_it_is(models: Path, how: str) -> None:
    tracked = Tracked(models / "model.onnx", max_series=1)
    tracked.push(empty(rows(100), "f01", 10, 100))
    found = tracked.incidents.end() if how == "end" else tracked.push(rows(1), series="y")
    assert brief(found) == [("closed", "x", "open", 10, 99, 10, 99, "f01")]
    assert tracked.tally.incidents_open == 0


@pytest.mark.slow
def test_a_real_watch_tells_ten_minutes_without_a_sensor_through_a_restart(edited: Edit, tmp_path: Path) -> None:
    model = edited(spacing=Spacing(step=30.0, clock="date").to_dict(), time_column="t")
    frame = empty(empty(rows(200), "f01", 50, 120), "f02", 60, 70)
    lines = []
    for i, row in enumerate(frame.iter_rows(named=True)):
        kept = {name: row[name] for name in COLUMNS if row[name] is not None}
        lines.append(json.dumps(kept | {"t": (START + timedelta(seconds=30 * i)).isoformat()}))
    words = ["--on-missing-feature", "mask", "--only", "incidents", "--threshold", 1e9, "--state", tmp_path / "state"]
    events = []
    for part in np.split(np.array(lines), [80, 90]):
        told, _ = watched(model, part.tolist(), *words)
        events += told
    assert [(one["event"], one["kind"], one["begin"], one["end"]) for one in events] == [
        ("opened", "missing feature", "2024-01-01T00:25:00", "2024-01-01T00:34:30"),
        ("closed", "missing feature", "2024-01-01T00:25:00", "2024-01-01T00:59:30"),
    ]
    assert events[1]["duration_s"] == 34.5 * 60
    assert events[0]["id"] == events[1]["id"]
