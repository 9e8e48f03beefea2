"""Incidents against labels, in the clock that report and evaluation share."""

import json
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from at_infer.evaluation.incidents import count_incidents
from at_infer.incidents.rules import IncidentRules
from at_infer.report.scores import survey_scores
from at_infer.tables.scores import ScoredFile
from tests.conftest import Answer

Cli = Callable[..., Answer]
RULES = IncidentRules(open_at=2, close_at=2, merge_rows=5)
START = datetime(2024, 1, 1)


def write(path: Path, high: list[tuple[int, int]], labels: list[tuple[int, int]], series: int = 1) -> ScoredFile:
    """Series of 1440 minutes each, all of the same day; a gap of a month in the middle of each."""
    score, label = np.ones(1440, np.float32), np.zeros(1440, np.int8)
    for first, end in high:
        score[first:end] = 3
    for first, end in labels:
        label[first:end] = 1
    times = [START + timedelta(minutes=i + (i > 700) * 43_200) for i in range(1440)]
    frame = pl.DataFrame({"t": times, "score": score, "label": label})
    parts = [frame.select(pl.lit(f"s{i}").alias("s"), pl.all()) for i in range(series)]
    pl.concat(parts).write_parquet(path, metadata={"at_infer.threshold": "2.0"})
    return ScoredFile(str(path), str(path))


def test_found_false_and_late(tmp_path: Path) -> None:
    file = write(tmp_path / "s.parquet", [(100, 120), (503, 520), (1000, 1010)], [(98, 99), (500, 501), (1200, 1210)])
    found = count_incidents(file, RULES, rows_per_day=1440, scored_rows=1440)
    assert (found.incidents, found.false_incidents, found.anomalies, found.found) == (3, 1, 3, 2)
    assert found.incident_recall == pytest.approx(2 / 3)
    assert found.delay_rows == pytest.approx((2 + 3) / 2)
    assert found.false_incidents_per_day == pytest.approx(1)


def test_anomalies_that_nobody_can_tell_apart_are_one(tmp_path: Path) -> None:
    file = write(tmp_path / "s.parquet", [(100, 120)], [(100, 101), (104, 105), (112, 113)])
    assert count_incidents(file, RULES, rows_per_day=None, scored_rows=1440).anomalies == 2


@pytest.mark.slow
def test_report_and_evaluation_have_one_clock(tmp_path: Path, run_cli: Cli) -> None:
    file = write(tmp_path / "s.parquet", [(100, 120), (1000, 1010)], [(100, 101)], series=30)
    answer = run_cli("evaluate", tmp_path / "s.parquet", "--json")
    evaluation = json.loads(answer.out)
    report = survey_scores(file)
    assert report.days == pytest.approx(30)
    assert evaluation["rows"] / evaluation["rows_per_day"] == pytest.approx(report.days)
    assert evaluation["incidents"]["days"] == pytest.approx(report.days)
    assert evaluation["incidents"]["false_incidents_per_day"] == pytest.approx(1)
    assert evaluation["concatenated"]["false_alarms_per_day"]["score"] == pytest.approx(1)


def test_the_table_begins_with_incidents(tmp_path: Path, run_cli: Cli) -> None:
    write(tmp_path / "s.parquet", [(100, 120), (1000, 1010)], [(100, 101)])
    text = run_cli("evaluate", tmp_path / "s.parquet").out
    assert text.index("INCIDENTS") < text.index("ALL ROWS AS ONE SERIES")
    assert ["incident", "recall", "1.0000"] in [line.split() for line in text.splitlines()]
