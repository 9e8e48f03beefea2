"""Incidents from scores: when they open, close and merge, and that pieces, restarts and notations change nothing."""

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from at_infer.errors import ConfigError
from at_infer.incidents.curve import count_openings
from at_infer.incidents.incident import Incident, incident_id, plain_time
from at_infer.incidents.rules import IncidentRules
from at_infer.incidents.tracker import Event, Evidence, IncidentTracker

RULES = IncidentRules(open_at=2.0, close_at=1.5)
Floats = NDArray[np.float32]


def track(scores: list[float] | Floats, rules: IncidentRules = RULES, **more: Any) -> list[Incident]:
    tracker = IncidentTracker(rules, model="m")
    events = [*tracker.add(np.array(scores, np.float32), **more), *tracker.end()]
    return [event.incident for event in events if event.kind == "closed"]


def rows_of(incidents: list[Incident]) -> list[tuple[int, int]]:
    return [(one.begin_row, one.end_row) for one in incidents]


def test_an_incident_opens_above_the_threshold_and_lasts_above_the_lower_limit() -> None:
    (found,) = track([1, 1.8, 2.1, 1.6, 2.5, 1.7, 1.4, 1.8, 1])
    assert (found.begin, found.peak, found.end) == (2, 4, 5)
    assert (found.rows, found.peak_score, found.ratio, found.state) == (4, 2.5, 1.25, "closed")


def test_a_short_one_is_none() -> None:
    scores = [0, 3, 0, 3, 3, 3, 0]
    assert rows_of(track(scores, replace(RULES, min_rows=3))) == [(3, 5)]


def test_short_gaps_are_bridged_if_the_threshold_is_exceeded_again() -> None:
    scores = [3, 0, 0, 3, 0, 0, 1.8, 0, 0, 0, 3]
    assert rows_of(track(scores, replace(RULES, merge_rows=2))) == [(0, 3), (10, 10)]


def test_in_the_cool_down_none_opens_but_one_that_outlasts_it() -> None:
    scores = [3, 0, 3, 0, 0, 3, 3, 3]
    assert rows_of(track(scores, replace(RULES, cool_down_rows=5))) == [(0, 0), (5, 7)]


def test_a_row_without_a_score_is_below() -> None:
    assert rows_of(track([3, np.nan, 3])) == [(0, 0), (2, 2)]


def test_what_gets_clearly_worse_is_told_again() -> None:
    tracker = IncidentTracker(RULES, model="m")
    events = tracker.add(np.array([2.1, 3.0, 3.2, 4.0, 9.0, 5.0, 0.0], np.float32))
    assert [(event.kind, event.incident.peak_score) for event in events] == [
        ("opened", pytest.approx(2.1)),
        ("worse", pytest.approx(3.2)),
        ("worse", 9.0),
        ("closed", 9.0),
    ]
    assert len({event.incident.id for event in events}) == 1


def test_the_end_of_the_rows_leaves_an_incident_open() -> None:
    tracker = IncidentTracker(RULES, model="m")
    tracker.add(np.array([0, 3], np.float32))
    assert tracker.current is not None
    (event,) = tracker.end()
    assert (event.kind, event.incident.state) == ("closed", "open")
    assert tracker.current is None


def test_an_incident_begins_where_earlier_rows_support_it() -> None:
    scores, onset = [0, 3, 3, 4, 3, 3, 0], np.array([0, 0, 0, 0, 5, 5, 5], np.float32)
    ahead = replace(RULES, look_ahead_rows=4)
    (found,) = track(scores, ahead, onset=onset)
    assert (found.begin_row, found.end_row, found.peak_row, found.peak_score) == (4, 5, 4, 3)
    assert rows_of(track(scores, ahead, onset=onset * 0)) == [(3, 5)], "the peak, where nothing supports it"


def test_causes_are_shares_of_all_rows_of_an_incident() -> None:
    tracker = IncidentTracker(RULES, model="m", features=["a", "b", None], views=["shape", "level"])
    blame = np.array([[9, 9, 9], [1, 2, 0], [1, 2, 2], [9, 9, 9]], np.float32)
    views = np.array([[0, 0, 0], [0, 1, 0], [1, 1, 0], [0, 0, 0]], np.float32)
    events = tracker.add(np.array([0, 3, 3, 0], np.float32), evidence=Evidence(blame, views))
    assert [tuple(cause) for cause in events[-1].incident.causes] == [("b", 0.5, "level"), ("a", 0.25, "shape")]


def test_what_supports_an_incident_when_it_is_nearly_over_is_not_its_begin() -> None:
    """A score of past rows may rise when the score itself is below the threshold, but not yet below the lower limit."""
    scores, onset = [0, 3, 4, 3, 1.7, 1.7, 0], np.array([0, 0, 0, 0, 0, 5, 5], np.float32)
    ahead = replace(RULES, look_ahead_rows=6)
    (found,) = track(scores, ahead, onset=onset)
    assert (found.begin_row, found.end_row, found.peak_row, found.peak_score) == (2, 5, 2, 4)


def test_rules_that_cannot_be_are_refused() -> None:
    with pytest.raises(ConfigError, match="close_at: 3 is above the threshold 2"):
        IncidentRules(open_at=2, close_at=3)
    with pytest.raises(ConfigError, match="min_rows: 0 is too small"):
        replace(RULES, min_rows=0)
    assert IncidentRules.from_dict(json.loads(json.dumps(RULES.to_dict()))) == RULES


def test_an_id_does_not_depend_on_how_a_time_is_written() -> None:
    instant = datetime(2024, 5, 1, 12, 30, tzinfo=UTC)
    written = [
        instant,
        instant.replace(tzinfo=None),
        instant.astimezone(timezone(timedelta(hours=2))),
        np.datetime64("2024-05-01T12:30:00", "ns"),
        "2024-05-01T12:30:00Z",
        "2024-05-01 12:30:00",
    ]
    assert len({incident_id("m", "s", plain_time(one)) for one in written}) == 1
    assert len({incident_id("m", "s", plain_time(one)) for one in (7, 7.0, "7", np.int64(7))}) == 1
    assert len({incident_id(*one) for one in (("m", "s", 7), ("m", "t", 7), ("n", "s", 7), ("m", "s", 8))}) == 4


@st.composite
def streams(draw: st.DrawFn) -> tuple[Floats, IncidentRules, list[int]]:
    level = st.sampled_from([0.0, 1.0, 1.6, 1.9, 2.1, 3.0, 5.0, 20.0, float("nan")])
    scores = np.array(draw(st.lists(level, max_size=60)), np.float32)
    small = st.integers(0, 5)
    rules = replace(
        RULES,
        min_rows=1 + draw(small),
        merge_rows=draw(small),
        cool_down_rows=draw(small),
        look_ahead_rows=draw(small),
    )
    return scores, rules, sorted(draw(st.lists(st.integers(0, len(scores)), max_size=6)))


@settings(max_examples=300)
@given(streams())
def test_incidents_are_counted_without_making_them(stream: tuple[Floats, IncidentRules, list[int]]) -> None:
    scores, rules, _ = stream
    assert count_openings(scores, rules) == len(track(scores, rules))


@settings(max_examples=150)
@given(streams(), st.booleans())
@pytest.mark.slow
def test_pieces_and_restarts_never_change_the_events(
    stream: tuple[Floats, IncidentRules, list[int]], supported: bool
) -> None:
    scores, rules, cuts = stream
    onset = None if supported else np.roll(scores, 3)
    blame = np.abs(np.nan_to_num(scores))[:, None] * np.array([0.1, 0.7], np.float32)
    times = [f"2024-01-01T00:{i:02}:00" for i in range(len(scores))]

    def tracker() -> IncidentTracker:
        return IncidentTracker(rules, model="m", features=["a", "b"])

    def add(to: IncidentTracker, rows: slice) -> list[Event]:
        part = None if onset is None else onset[rows]
        return to.add(scores[rows], times[rows], onset=part, evidence=Evidence(blame[rows]))

    whole = tracker()
    expected = [*add(whole, slice(0, len(scores))), *whole.end()]
    found: list[Event] = []
    now = tracker()
    for first, end in zip([0, *cuts], [*cuts, len(scores)], strict=True):
        found += add(now, slice(first, end))
        kept = json.loads(json.dumps(now.remember()))
        now = tracker()
        now.recall(kept)
    assert [*found, *now.end()] == expected
    one_by_one = tracker()
    each = [event for i in range(len(scores)) for event in add(one_by_one, slice(i, i + 1))]
    assert [*each, *one_by_one.end()] == expected
    opened = [event.incident.id for event in expected if event.kind == "opened"]
    assert opened == [event.incident.id for event in expected if event.kind == "closed"]
    for event in expected:
        json.dumps(event.incident.as_json(), allow_nan=False)


@pytest.mark.parametrize(
    ("written", "plain"),
    [
        ("2024-01-01 10:00:00", "2024-01-01T10:00:00"),
        ("2024-01-01T10:00:00.500", "2024-01-01T10:00:00.500000"),
        ("2024-01-01T10:00:00Z", "2024-01-01T10:00:00+00:00"),
        (" 2024-10-27 02:30:00+01:00", "2024-10-27T02:30:00+01:00"),
        ("2024-01-01 10:00:00.123456789", "2024-01-01T10:00:00.123456789"),
        (datetime(2024, 1, 1, 10), "2024-01-01T10:00:00"),
        (np.datetime64("2024-01-01T10:00:00"), "2024-01-01T10:00:00"),
        ("2024-01-01", "2024-01-01"),
        ("7", 7),
        ("7.5", 7.5),
        ("123456789012345678901", "123456789012345678901"),
        ("monday", "monday"),
    ],
)
def test_times_have_one_spelling(written: Any, plain: Any) -> None:
    assert plain_time(written) == plain
    assert incident_id("m", "s", plain_time(written)) == incident_id("m", "s", plain)
