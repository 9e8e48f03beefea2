"""A real `at-infer watch` whose rows pause, whose clock stumbles, and one of whose sensors dies and returns."""

import json
import subprocess
from datetime import datetime, timedelta
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from at_infer.models.spacing import Spacing
from tests.programs import programs
from tests.scored import COLUMNS, Edit, Score, rows

pytestmark = pytest.mark.slow


def watched(engine: Path, lines: list[str], *words: object) -> tuple[list[dict[str, object]], str]:
    command = [programs() / "at-infer", "watch", "--engine", engine, "--threads", 1, "--batch-size", 1, *words]
    text = "".join(f"{line}\n" for line in lines)
    done = subprocess.run(list(map(str, command)), input=text, capture_output=True, check=True, text=True)
    return [json.loads(line) for line in done.stdout.splitlines()], done.stderr


def test_gaps_a_dead_sensor_and_a_restart_change_no_score(score: Score, edited: Edit, tmp_path: Path) -> None:
    model = edited(spacing=Spacing(step=60.0, clock="date").to_dict(), time_column="t")
    minutes = np.arange(400) + 120 * (np.arange(400) >= 90) + 7 * (np.arange(400) >= 300)
    times = [datetime(2024, 1, 1) + timedelta(minutes=int(minute)) for minute in minutes]
    dead = pl.int_range(pl.len()).is_between(150, 239)
    frame = rows(400, t=times).with_columns(f01=pl.when(dead).then(None).otherwise(pl.col("f01")))
    expected = score(frame, engine=model, align="last", batch_size=1, on_missing_feature="mask")
    assert expected.summary.gaps == 2
    lines = []
    for row in frame.iter_rows(named=True):
        kept = {name: row[name] for name in COLUMNS if row[name] is not None}  # absent, rather than null
        lines.append(json.dumps(kept | {"t": row["t"].isoformat()}))
    lines.insert(200, lines[10])  # its time went by long ago
    words = ["--on-missing-feature", "mask", "--on-bad-time", "drop", "--state", tmp_path / "state"]
    first, said_first = watched(model, lines[:170], *words)
    second, said_second = watched(model, lines[170:], *words)
    answers = first + second
    assert [answer["t"] for answer in answers] == [time.isoformat() for time in times]
    found = np.array([np.nan if answer["score"] is None else answer["score"] for answer in answers], np.float32)
    np.testing.assert_array_equal(found, expected.score)
    assert "row 159 at 2024-01-01T04:39:00: column 'f01' has no value for 10 rows now; it is masked" in said_first
    assert "column 'f01'" not in said_second.split("column 'f01' is back after 90 rows without a value")[0]
    assert said_second.count("column 'f01'") == 1
    assert "1 gap in time" in said_first
    assert "1 row dropped whose time does not increase, 1 gap in time" in said_second
