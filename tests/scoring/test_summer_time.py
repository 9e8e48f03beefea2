"""The hour that comes twice when summer time ends, in Europe/Berlin: with zones nothing happens, without it is told."""

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import polars as pl
import pytest

from at_infer.errors import DataError
from at_infer.incidents.written import write_incidents
from at_infer.models.spacing import Spacing
from tests.conftest import Answer
from tests.live.test_watch_clock import watched
from tests.report_pages import Page
from tests.scored import COLUMNS, Edit, Score, rows

START = datetime(2024, 10, 26, 23, tzinfo=UTC)
"""01:00 in Berlin; from 01:00 UTC on, row 120, it is 02:00 there for the second time."""
TOLD = {"explain": "top", "align": "last", "threshold": 2.0, "batch_size": 1}


@pytest.fixture
def model(edited: Edit) -> Path:
    return edited(spacing=Spacing(step=60.0, clock="date").to_dict(), time_column="t")


@pytest.fixture
def frame() -> pl.DataFrame:
    """A row a minute, with an anomaly from 02:45 to 02:15, half an hour later."""
    found = rows(300, t=[START + timedelta(minutes=i) for i in range(300)])
    far = pl.when(pl.int_range(pl.len()).is_between(105, 134)).then(40.0).otherwise(0.0).cast(pl.Float32)
    return found.with_columns(f00=pl.col("f00") + far)


def berlin(frame: pl.DataFrame) -> pl.DataFrame:
    return frame.with_columns(pl.col("t").dt.convert_time_zone("Europe/Berlin"))


def as_text(frame: pl.DataFrame) -> pl.DataFrame:
    return frame.with_columns(t=pl.Series([time.isoformat(" ") for time in berlin(frame)["t"]]))


def incidents(score: Score, model: Path, frame: pl.DataFrame, path: Path) -> list[dict[str, object]]:
    found = score(frame, engine=model, **TOLD)
    assert (found.summary.gaps, found.summary.dropped_rows) == (0, 0)
    write_incidents(str(found.path), path)
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.mark.slow
def test_with_a_zone_time_rises_and_incidents_are_right(
    score: Score, model: Path, frame: pl.DataFrame, tmp_path: Path
) -> None:
    path = tmp_path / "i.jsonl"
    expected, *_ = incidents(score, model, frame, path)
    assert expected["begin_row"] in range(105, 110)
    for other in (berlin(frame), as_text(frame)):
        found, *_ = incidents(score, model, other, path)
        begin, end = (datetime.fromisoformat(str(found[name])) for name in ("begin", "end"))
        assert begin.isoformat() == found["begin"]
        assert (begin.utcoffset(), end.utcoffset()) == (timedelta(hours=2), timedelta(hours=1))
        assert (end - begin).total_seconds() == found["duration_s"] == 60 * (int(str(found["rows"])) - 1)
        same = ("id", "begin_row", "end_row", "peak_row", "duration_s", "state")
        assert [found[name] for name in same] == [expected[name] for name in same]


@pytest.mark.slow
def test_the_report_is_in_utc_and_says_so(
    run_cli: Callable[..., Answer], score: Score, model: Path, frame: pl.DataFrame, tmp_path: Path
) -> None:
    for zoned in (berlin(frame), as_text(frame)):
        scored = score(zoned, engine=model, **TOLD)
        answer = run_cli("report", scored.path, "-o", tmp_path / "page.html", "--overwrite")
        assert answer.code == 0, answer
        page = Page(tmp_path / "page.html")
        assert page.description["zone"] == "UTC"


@pytest.mark.slow
def test_without_a_zone_the_row_is_named_and_there_are_ways_on(
    score: Score, model: Path, frame: pl.DataFrame, tmp_path: Path
) -> None:
    naive = berlin(frame).with_columns(pl.col("t").dt.replace_time_zone(None))
    twice = r"row 120: t 2024-10-27 02:00:00 comes after 2024-10-27 02:59:00; .*on_bad_time='drop' or on_bad_time='ig"
    with pytest.raises(DataError, match=twice):
        score(naive, engine=model, **TOLD)
    dropped = score(naive, engine=model, on_bad_time="drop", **TOLD)
    assert (dropped.summary.rows, dropped.summary.dropped_rows, dropped.summary.gaps) == (240, 60, 0)
    ignored = score(naive, engine=model, on_bad_time="ignore", **TOLD)
    assert (ignored.summary.rows, ignored.summary.gaps) == (300, 1)  # the clock goes back by 59 minutes
    write_incidents(str(ignored.path), tmp_path / "i.jsonl")
    found = [json.loads(line) for line in (tmp_path / "i.jsonl").read_text().splitlines()]
    assert all(one["end_row"] < 120 or one["begin_row"] >= 120 for one in found)
    assert found[0]["begin"].startswith("2024-10-27T02:4")


@pytest.mark.slow
def test_watch_tells_the_same_of_texts_with_offsets(
    score: Score, model: Path, frame: pl.DataFrame, tmp_path: Path
) -> None:
    expected = incidents(score, model, frame, tmp_path / "i.jsonl")
    lines = [json.dumps({name: row[name] for name in (*COLUMNS, "t")}) for row in as_text(frame).to_dicts()]
    told, said = watched(model, lines, "--only", "incidents", "--threshold", 2)
    assert "0 bad lines" in said
    closed = [one for one in told if one["event"] == "closed"]
    assert [(one["id"], one["duration_s"]) for one in closed] == [(one["id"], one["duration_s"]) for one in expected]
    assert str(closed[0]["begin"]).endswith("+02:00")
    assert str(closed[0]["end"]).endswith("+01:00")
