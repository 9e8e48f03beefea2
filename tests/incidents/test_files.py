"""Incidents of files of scores: begins, formats, and the same from one file, in pieces and on workers."""

import json
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from at_infer import StreamScorer
from at_infer.cluster.run import score_on_workers
from at_infer.errors import OutputError
from at_infer.incidents.defaults import rules_of_scorer, rules_of_scores
from at_infer.incidents.find import find_incidents
from at_infer.incidents.incident import Incident
from at_infer.incidents.tracker import IncidentTracker
from at_infer.incidents.written import check_incidents_path, write_incidents
from at_infer.scoring.options import InputOptions, ScoreOptions
from at_infer.tables.scores import ScoredFile
from tests.conftest import Answer, Score
from tests.in_process import Opener
from tests.scored import COLUMNS, rows, values

Cli = Callable[..., Answer]
START = datetime(2024, 1, 1)


def disturbed(kind: str, at: int, count: int = 600) -> pl.DataFrame:
    """Normal rows, and what begins at one of them in the first column."""
    frame, rng = rows(count), np.random.default_rng(1)
    first = frame[COLUMNS[0]].to_numpy().copy()
    scale = first.std()
    match kind:
        case "spike":
            first[at] += 40 * scale
        case "step":
            first[at : at + 120] += 15 * scale
        case "burst":
            first[at : at + 40] += 15 * scale * rng.choice([-1, 1], 40)
    return frame.with_columns(pl.Series(COLUMNS[0], first.astype(np.float32)))


def incidents_of(path: Path, **given: Any) -> list[Incident]:
    file = ScoredFile(str(path))
    return [found.incident for found in find_incidents(file, rules_of_scores(file.properties, source="s", **given))]


@pytest.mark.parametrize("kind", ["spike", "step", "burst"])
@pytest.mark.parametrize("at", [303, 310, 319])
@pytest.mark.slow
def test_an_incident_begins_at_its_cause_although_the_score_rises_before(score: Score, kind: str, at: int) -> None:
    found = score(disturbed(kind, at), explain="top", threshold=2.0)
    rises = int(np.flatnonzero(found.score > 2)[0])
    assert rises < at - 5
    begin = incidents_of(found.path)[0].begin
    assert isinstance(begin, int)
    assert at <= begin <= at + 3


@pytest.mark.parametrize("kind", ["spike", "step", "burst"])
def test_a_smoothed_score_has_an_onset_too(plain_score: Score, kind: str) -> None:
    at = 300  # the first row of a window, so that the network cannot tell earlier rows
    found = plain_score(disturbed(kind, at), explain="top", smooth=9, threshold=4.0)
    assert np.flatnonzero(found.score > 4)[0] < at
    begin = incidents_of(found.path)[0].begin
    assert isinstance(begin, int)
    assert at <= begin <= at + 4


def test_causes_name_feature_and_view(score: Score) -> None:
    found = incidents_of(score(disturbed("spike", 310), explain="top", threshold=2.0).path)[0]
    assert found.causes[0].feature == COLUMNS[0]
    assert found.causes[0].share > 0.5
    assert found.causes[0].view in ("shape", "next row", "rows ahead", "burst", "level")
    scored = score(disturbed("spike", 310), explain="all", threshold=2.0)
    every = incidents_of(scored.path)[0]
    assert (every.id, every.begin, every.causes[0].feature) == (found.id, found.begin, COLUMNS[0])
    of_incident = scored.frame[every.begin_row : every.end_row + 1]
    assert {cause.feature for cause in every.causes} == set(COLUMNS)
    for cause in every.causes:  # a file has the view of each row's top feature, and says nothing of the others
        shown = of_incident.filter(pl.col("top_feature") == cause.feature)
        by_view = shown.group_by("top_view").agg(pl.sum(f"error_{cause.feature}")).sort(f"error_{cause.feature}")
        assert cause.view == (by_view["top_view"][-1] if shown.height else None)


def test_files_of_incidents_hold_the_same_in_both_formats(score: Score, tmp_path: Path) -> None:
    times = [START + timedelta(minutes=i) for i in range(600)]
    frame = disturbed("step", 310).with_columns(t=pl.Series(times))
    found = score(frame, explain="top", threshold=2.0, time_column="t")
    as_table, as_lines = tmp_path / "incidents.parquet", tmp_path / "incidents.jsonl"
    written = write_incidents(str(found.path), as_table)
    assert write_incidents(str(found.path), as_lines).incidents == written.incidents > 0
    table = pl.read_parquet(as_table)
    lines = [json.loads(line) for line in as_lines.read_text().splitlines()]
    assert table["id"].to_list() == [line["id"] for line in lines]
    assert table["begin"].dtype == pl.Datetime("us")
    assert [time.isoformat() for time in table["begin"]] == [line["begin"] for line in lines]
    assert table["duration_s"].to_list() == [60.0 * (line["rows"] - 1) for line in lines]
    assert table["causes"].to_list() == [line["causes"] for line in lines]
    assert json.loads(pl.read_parquet_metadata(as_table)["at_infer.incident_rules"])["open_at"] == 2.0


def test_no_incident_is_an_empty_file(score: Score, tmp_path: Path) -> None:
    found = score(rows(100), threshold=1e6)
    assert write_incidents(str(found.path), tmp_path / "i.parquet").incidents == 0
    assert pl.read_parquet(tmp_path / "i.parquet").is_empty()
    write_incidents(str(found.path), tmp_path / "i.jsonl")
    assert (tmp_path / "i.jsonl").read_text() == ""


@pytest.mark.slow
def test_a_file_and_workers_and_a_stream_find_the_same_ids(models: Path, score: Score, tmp_path: Path) -> None:
    frame = pl.concat([disturbed("spike", 310), disturbed("burst", 290)])
    frame = frame.with_columns(s=pl.Series(["a"] * 600 + ["b"] * 600), t=pl.Series(list(range(1200))))
    frame.write_parquet(tmp_path / "given.parquet")
    options = ScoreOptions(explain="top", align="last", threshold=2.0)
    input_options = InputOptions(series_column="s", time_column="t")
    path = score(tmp_path / "given.parquet", **options.to_dict(), series_column="s", time_column="t").path
    engine = models / "model.onnx"
    score_on_workers(
        str(tmp_path / "given.parquet"),
        engine,
        tmp_path / "cluster",
        options,
        input_options,
        open_workers=Opener(2),
        split_rows=300,
    )
    expected = incidents_of(path)
    assert {one.series for one in expected} == {"a", "b"}
    assert incidents_of(tmp_path / "cluster") == expected
    with StreamScorer(engine, ScoreOptions(threshold=2.0)) as stream:
        trackers = {
            name: IncidentTracker(
                rules_of_scorer(stream.scorer), model=stream.metadata.checkpoint_sha256, series=str(name)
            )
            for name in ("a", "b")
        }
        live = []
        for row, name, time in zip(values(frame), frame["s"], frame["t"], strict=True):
            answer = stream.push(row, series=name, time=time)
            score_ = np.array([np.nan if answer.score is None else answer.score], np.float32)
            live += trackers[name].add(score_, [time])
        live += [event for tracker in trackers.values() for event in tracker.end()]
    closed = [event.incident for event in live if event.kind == "closed"]
    assert [(one.id, one.begin, one.end) for one in closed] == [(one.id, one.begin, one.end) for one in expected]


def test_the_command_writes_incidents_beside_the_scores(run_cli: Cli, models: Path, tmp_path: Path) -> None:
    disturbed("spike", 310).write_parquet(tmp_path / "given.parquet")
    words = ["score", tmp_path / "given.parquet", "--engine", models / "model.onnx", "-o", tmp_path / "s.parquet"]
    incidents = tmp_path / "incidents.parquet"
    answer = run_cli(*words, "--threshold", "2", "--incidents", incidents)
    assert answer.code == 0, answer
    assert f"{incidents}: " in answer.out
    assert "top_feature" in pl.read_parquet(tmp_path / "s.parquet").columns
    again = run_cli(*words, "--overwrite", "--json", "--incidents", incidents)
    assert json.loads(again.out)["incidents"] == pl.read_parquet(incidents).height
    assert "exists already" in run_cli(*words[:-1], tmp_path / "other.parquet", "--incidents", incidents).err
    assert not (tmp_path / "other.parquet").exists()


@pytest.mark.slow
def test_rules_are_options_and_are_recorded(run_cli: Cli, models: Path, tmp_path: Path) -> None:
    disturbed("step", 310).write_parquet(tmp_path / "given.parquet")
    path = tmp_path / "i.parquet"
    words = ["score", tmp_path / "given.parquet", "--engine", models / "model.onnx", "-o", tmp_path / "s.parquet"]
    words += ["--overwrite", "--threshold", "2"]
    usual = run_cli(*words, "--incidents", path)
    assert usual.out.splitlines()[-1].endswith("opens above 2, closes below 1.5, and bridges 50 rows")
    given = run_cli(*words, "--incidents", path, "--min-rows", 500, "--merge-rows", 7, "--cool-down-rows", 60)
    assert given.out.splitlines()[-1] == (
        f"{path}: 0 incidents, 0 of them open at the end; an incident opens above 2, closes below 1.5, and bridges 7 "
        f"rows; it has at least 500 rows; none opens for 60 rows after it"
    )
    rules = json.loads(pl.read_parquet_metadata(path)["at_infer.incident_rules"])
    assert (rules["min_rows"], rules["merge_rows"], rules["cool_down_rows"]) == (500, 7, 60)
    assert incidents_of(tmp_path / "s.parquet") == []  # a report goes by them too
    assert run_cli(*words, "--min-rows", 5).err == (
        "error: --min-rows: is a rule for incidents, which are off; add --incidents FILE\n"
    )
    assert "--min-rows: 0 is too small" in run_cli(*words, "--incidents", path, "--min-rows", 0).err


def test_a_place_that_cannot_be_is_refused_before_the_work(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match=r"are written as \.parquet or \.jsonl"):
        check_incidents_path(tmp_path / "i.csv", tmp_path / "s.parquet", overwrite=False)
    with pytest.raises(OutputError, match="is the scores file"):
        check_incidents_path(tmp_path / "s" / "i.parquet", tmp_path / "s", overwrite=False)
