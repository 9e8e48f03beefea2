"""No incident spans a gap in time, be it of scores or of a missing feature, whoever reads the rows."""

import json
from dataclasses import asdict, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from at_infer import EngineOptions, ScoreOptions, Scorer, StreamScorer
from at_infer.cluster.run import score_on_workers
from at_infer.incidents.defaults import rules_of_scorer, rules_of_scores
from at_infer.incidents.find import find_incidents
from at_infer.incidents.incident import Incident
from at_infer.incidents.outages import OutageTracker
from at_infer.incidents.rules import IncidentRules
from at_infer.incidents.tracker import Event, IncidentTracker
from at_infer.live.incidents import KeptTracker, LiveIncidents
from at_infer.live.tally import Tally
from at_infer.models.spacing import Spacing
from at_infer.tables.scores import ScoredFile
from tests.in_process import Opener
from tests.scored import Edit, Score, rows, values

RULES = IncidentRules(open_at=2.0, close_at=1.5, merge_rows=3, outage_rows=3)


def brief(events: list[Event]) -> list[tuple[Any, ...]]:
    return [(kind, one.begin_row, one.end_row, one.state) for kind, one in events]


def test_a_gap_ends_an_incident_and_nothing_is_bridged_over_it() -> None:
    tracker = IncidentTracker(RULES, model="m")
    events = (
        tracker.add(np.array([0, 3, 0], np.float32)) + tracker.cross_gap() + tracker.add(np.array([3.0], np.float32))
    )
    assert brief(events) == [("opened", 1, 1, "open"), ("closed", 1, 1, "closed"), ("opened", 3, 3, "open")]
    assert brief(tracker.cross_gap()) == [("closed", 3, 3, "closed")]  # although its last row is above the limit
    assert tracker.current is None


def test_a_cool_down_counts_rows_on_both_sides_of_a_gap() -> None:
    tracker = IncidentTracker(replace(RULES, cool_down_rows=4, merge_rows=0), model="m")
    events = tracker.add(np.array([3, 0], np.float32)) + tracker.cross_gap()
    events += tracker.add(np.array([3, 0, 0, 3, 0], np.float32))
    assert [(kind, begin) for kind, begin, *_ in brief(events)] == [
        ("opened", 0),
        ("closed", 0),
        ("opened", 5),
        ("closed", 5),
    ]


def test_rows_too_few_before_a_gap_do_not_count_behind_it() -> None:
    tracker = IncidentTracker(replace(RULES, min_rows=3), model="m")
    events = tracker.add(np.array([3, 3], np.float32)) + tracker.cross_gap() + tracker.add(np.array([3, 0], np.float32))
    assert events + tracker.end() == []


@given(
    scores=st.lists(st.sampled_from([0.0, 1.7, 2.5, 9.0, float("nan")]), min_size=1, max_size=60),
    gaps=st.sets(st.integers(1, 59)),
    cuts=st.sets(st.integers(1, 59)),
    min_rows=st.integers(1, 3),
    cool_down=st.integers(0, 9),
)
def test_pieces_and_restarts_change_nothing_between_gaps(
    scores: list[float], gaps: set[int], cuts: set[int], min_rows: int, cool_down: int
) -> None:
    rules = replace(RULES, min_rows=min_rows, cool_down_rows=cool_down)
    of_rows, missing = np.array(scores, np.float32), np.array([[score > 2] for score in scores])

    def told(borders: set[int]) -> tuple[list[Event], list[dict[str, Any]]]:
        known = IncidentTracker(rules, model="m"), OutageTracker(rules, model="m", features=["a"])
        events, lost = list[Event](), list[Event]()
        for first, end in zip(places := sorted({0, *borders}), [*places[1:], len(scores)], strict=True):
            if first in gaps:
                events += known[0].cross_gap()
                lost += known[1].cross_gap()
            events += known[0].add(of_rows[first:end])
            lost += known[1].add(missing[first:end])
            kept = json.loads(json.dumps([one.remember() for one in known]))
            known = IncidentTracker(rules, model="m"), OutageTracker(rules, model="m", features=["a"])
            for one, memory in zip(known, kept, strict=True):
                one.recall(memory)
        return events + known[0].end(), [event.incident.as_json() for event in lost + known[1].end()]

    inside = {gap for gap in gaps if gap < len(scores)}
    assert told(inside) == told(inside | {cut for cut in cuts if cut < len(scores)})
    assert told(inside) == told(set(range(len(scores))))


# Files, workers, tables in memory and streams

START = datetime(2024, 3, 30, 22)
GAP = 330
MASK = {"on_missing_feature": "mask", "explain": "top", "threshold": 2.0}
ONE = EngineOptions(batch_size=1)


@pytest.fixture
def model(edited: Edit) -> Path:
    return edited(spacing=Spacing(step=60.0, clock="date").to_dict(), time_column="t", fill="forward")


@pytest.fixture
def frame() -> pl.DataFrame:
    """An anomaly that begins before a pause of an hour and goes on behind it, and so does a dead sensor."""
    minutes = np.arange(600) + 60 * (np.arange(600) >= GAP)
    found = rows(600, t=[START + timedelta(minutes=int(minute)) for minute in minutes])
    number = pl.int_range(pl.len())
    far = pl.when(number.is_between(310, 449)).then(40.0).otherwise(0.0).cast(pl.Float32)
    dead = number.is_between(300, 359)
    return found.with_columns(f00=pl.col("f00") + far, f01=pl.when(dead).then(None).otherwise(pl.col("f01")))


def spans(incidents: list[Incident], kind: str) -> list[tuple[int, int, str]]:
    return [(one.begin_row, one.end_row, one.state) for one in incidents if one.kind == kind]


def of_file(path: Path) -> list[Incident]:
    file = ScoredFile(str(path))
    return [found.incident for found in find_incidents(file, rules_of_scores(file.properties, source="s"))]


@pytest.mark.parametrize("max_gap", [None, 0])
@pytest.mark.slow
def test_files_workers_and_tables_agree(
    score: Score, model: Path, frame: pl.DataFrame, tmp_path: Path, max_gap: int | None
) -> None:
    scored = score(frame, engine=model, **MASK, align="last", batch_size=1, max_gap=max_gap)
    assert scored.frame.columns[-1] == "missing_features"
    assert scored.frame["missing_features"].to_list()[298:302] == [None, None, ["f01"], ["f01"]]
    expected = of_file(scored.path)
    found = spans(expected, "anomaly")
    assert all(end < GAP or begin >= GAP for begin, end, _ in found) is (max_gap is None)
    assert {begin < GAP for begin, _, _ in found} == {True, False} if max_gap is None else {True}
    cut = [(300, GAP - 1, "closed"), (GAP, 359, "closed")]
    assert spans(expected, "missing feature") == (cut if max_gap is None else [(300, 359, "closed")])
    options = ScoreOptions(**MASK, align="last", max_gap=max_gap)  # type: ignore[arg-type]
    score_on_workers(
        str(tmp_path / "given.parquet"),
        model,
        tmp_path / "cluster",
        options,
        engine_options=ONE,
        open_workers=Opener(2),
        split_rows=100,
    )
    assert of_file(tmp_path / "cluster") == expected
    with Scorer(model, options, ONE) as scorer:
        in_memory = scorer.score(frame).incidents
        array = scorer.score(values(frame), times=frame["t"].to_list()).incidents
        batches = [one for result in scorer.stream(frame.iter_slices(77)) for one in result.incidents]
    facts = [[(one.id, one.begin, one.end, one.kind) for one in of] for of in (expected, in_memory, array, batches)]
    assert sorted(facts[0]) == sorted(facts[1]) == sorted(facts[2]) == sorted(facts[3])


@pytest.mark.parametrize(("restart", "step"), [(60, 1), (52, 13), (200, 200)])
@pytest.mark.parametrize("delay", [0, 5])
@pytest.mark.slow
def test_a_stream_agrees_with_the_file_through_restarts(
    score: Score, model: Path, frame: pl.DataFrame, tmp_path: Path, restart: int, step: int, delay: int
) -> None:
    frame = frame[280:480]
    options = ScoreOptions(**MASK, align="last", delay=delay)  # type: ignore[arg-type]
    expected = of_file(score(frame, engine=model, **MASK, align="last", delay=delay, batch_size=1).path)
    assert {one.kind for one in expected} == {"anomaly", "missing feature"}
    found: list[Event] = []
    kept: list[dict[str, Any]] = []
    for start in range(0, len(frame), restart):
        with StreamScorer(model, options, ONE) as stream:
            incidents = LiveIncidents(stream, rules_of_scorer(stream.scorer), Tally())
            if start:
                stream.load(tmp_path / "state")
                incidents.recall([KeptTracker(**one) for one in kept])
            for first in range(start, min(start + restart, len(frame)), step):
                part = frame[first : min(first + step, start + restart)]
                times = [time.isoformat() for time in part["t"]]
                tags = [(first + i, time) for i, time in enumerate(times)]
                pushed = stream.push_many(values(part), None, times, tags)
                found += incidents.add(pushed, by_series=False, by_time=True)
            if start + restart >= len(frame):
                found += incidents.add(stream.drain(), by_series=False, by_time=True) + incidents.end()
            stream.save(tmp_path / "state")
            kept = json.loads(json.dumps([asdict(one) for one in incidents.remember()]))
    closed = [event.incident for event in found if event.kind == "closed"]
    facts = [[(one.id, one.begin, one.end, one.begin_row, one.state) for one in of] for of in (closed, expected)]
    assert sorted(facts[0]) == sorted(facts[1])
    opened = [event.incident.id for event in found if event.kind == "opened"]
    assert sorted(opened) == sorted(one.id for one in closed)


def test_what_is_missing_must_not_have_the_name_of_a_key(score: Score) -> None:
    with pytest.raises(Exception, match="column 'missing_features': is the time or series column and a column of the"):
        score(rows(100, missing_features=["a"] * 100), series_column="missing_features", on_missing_feature="mask")
