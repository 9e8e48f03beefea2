"""Real windows of a file: filled as in training, never across series, spread over the file."""

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from at_infer.errors import DataError
from at_infer.scoring.real_windows import real_windows
from tests.exported import WINDOW, metadata

COLUMNS = ["a", "b", "c"]


def write(path: Path, rows: int, **columns: object) -> str:
    first = {"a": np.arange(rows, dtype=np.float32), "b": np.ones(rows), "c": np.zeros(rows)}
    pl.DataFrame(first | columns, strict=False).write_parquet(path)
    return str(path)


def test_gaps_are_filled_by_the_policy_of_the_model(tmp_path: Path) -> None:
    gaps = write(tmp_path / "d.parquet", 2 * WINDOW, b=[None, 5.0, None] + [7.0] * (2 * WINDOW - 3))
    forward = real_windows(gaps, metadata(columns=COLUMNS, fill="forward"))
    assert forward.shape == (2, WINDOW, 3)
    assert forward[0, :4, 1].tolist() == [0, 5, 5, 7]  # the mean at the start of a series
    assert real_windows(gaps, metadata(columns=COLUMNS, fill="mean"))[0, :4, 1].tolist() == [0, 5, 0, 7]
    with pytest.raises(DataError, match="column 'b' has no finite value in row 0"):
        real_windows(gaps, metadata(columns=COLUMNS, fill="error"))


def test_windows_and_gaps_end_with_their_series(tmp_path: Path) -> None:
    rows = 2 * WINDOW + 3
    columns = {"s": ["x"] * (WINDOW + 3) + ["y"] * WINDOW, "b": [4.0] * (WINDOW + 3) + [None] + [6.0] * (WINDOW - 1)}
    path = write(tmp_path / "d.parquet", rows, **columns)
    known = metadata(columns=COLUMNS, fill="forward", series_column="s")
    found = real_windows(path, known)
    assert found[:, 0, 0].tolist() == [0, WINDOW + 3]
    assert found[1, :2, 1].tolist() == [0, 6]
    pl.read_parquet(path).drop("s").write_parquet(path)
    assert real_windows(path, known)[:, 0, 0].tolist() == [0, WINDOW]


def test_a_few_windows_are_spread_over_the_file(tmp_path: Path) -> None:
    path = write(tmp_path / "d.parquet", 9 * WINDOW)
    known = metadata(columns=COLUMNS)
    assert (real_windows(path, known, most=3)[:, 0, 0] / WINDOW).tolist() == [0, 4, 8]
    assert len(real_windows(path, known, most=30)) == 9
    with pytest.raises(DataError, match=f"fewer than the model's window of {WINDOW}"):
        real_windows(write(tmp_path / "short.parquet", WINDOW - 1), known)
