"""Rows on a grid of times, against brute force over the whole series."""

from datetime import UTC, date, datetime, timedelta
from itertools import pairwise
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from at_infer.config import Resample
from at_infer.errors import ConfigError, DataError
from at_infer.models.spacing import Grid, choose_grid, grid_max_gap
from at_infer.tables import read_table, row_stream
from at_infer.tables.columns import Columns
from at_infer.tables.resample import OnGrid, Resampler, Rows, Steps
from at_infer.tables.row_stream import Chunk, RowStream

START = datetime(2024, 3, 31, 0, 0, tzinfo=UTC)


def brute_force(how: OnGrid, seconds: list[float], rows: Rows) -> tuple[list[float], list[list[float]]]:
    """One step after the other, one value after the other."""
    interval = how.grid.interval_s
    held: dict[int, list[int]] = {}
    for i, time in enumerate(seconds):
        held.setdefault(int(time // interval), []).append(i)
    times, values = list[float](), list[list[float]]()
    for step, members in held.items():
        row = []
        for j in range(rows.shape[1]):
            known = [float(rows[i, j]) for i in members if not np.isnan(rows[i, j])]
            total = 0.0
            for value in known:
                total += value
            chosen = known[-1:] if how.grid.resample == "last" else [total / len(known)] if known else []
            row.append(chosen[0] if chosen else np.nan)
        if times and step - round(times[-1] / interval) <= how.max_gap:
            while round(times[-1] / interval) < step - 1:
                times.append(times[-1] + interval)
                values.append(values[-1] if how.carry else [np.nan] * rows.shape[1])
        times.append(step * interval)
        values.append(row)
    return times, values


def joined(found: list[Steps], features: int = 2) -> tuple[np.ndarray, np.ndarray]:
    return (
        np.concatenate([np.empty(0), *(steps.seconds for steps in found)]),
        np.concatenate([np.empty((0, features), np.float32), *(steps.values for steps in found)]),
    )


@given(
    steps=st.lists(st.integers(1, 40), min_size=1, max_size=40),
    cuts=st.lists(st.integers(0, 40), max_size=6),
    resample=st.sampled_from(["mean", "last"]),
    max_gap=st.integers(1, 5),
    carry=st.booleans(),
    seed=st.integers(0, 99),
)
def test_any_chunks_give_the_steps_of_brute_force(
    steps: list[int], cuts: list[int], resample: Resample, max_gap: int, carry: bool, seed: int
) -> None:
    random = np.random.default_rng(seed)
    how = OnGrid(Grid(interval_s=10.0, resample=resample), max_gap, carry)
    seconds = 1.7e9 + np.cumsum(steps) / 2
    rows = random.normal(size=(len(steps), 2)).astype(np.float32)
    rows[random.random(rows.shape) < 0.3] = np.nan
    resampler, found = Resampler(how, 2), list[Steps]()
    edges = [0, *sorted(min(cut, len(steps)) for cut in cuts), len(steps)]
    for first, end in pairwise(edges):
        found += resampler.add(seconds[first:end], rows[first:end])
    times, values = joined([*found, *resampler.end()])
    expected_times, expected = brute_force(how, seconds.tolist(), rows)
    np.testing.assert_array_equal(times, expected_times)
    np.testing.assert_array_equal(values, np.array(expected, np.float32).reshape(-1, 2))


def test_infinite_values_stay_infinite_and_a_late_row_counts_where_it_comes() -> None:
    resampler = Resampler(OnGrid(Grid(interval_s=10.0), 3, carry=True), 1)
    values = np.array([[np.inf], [-np.inf], [4], [6], [1]], np.float32)
    found = [*resampler.add(np.array([0.0, 1, 10, 5, 20]), values), *resampler.end()]
    assert joined(found, 1)[1].ravel().tolist() == [np.inf, 5, 1]


def on_grid(path: Path, interval: str, **columns: object) -> list[Chunk]:
    grid = choose_grid(interval, None, None)
    assert grid is not None
    how = OnGrid(grid, 3, carry=True)
    read = Columns(
        ("a",), "t", **{"series_column": None, "series_per_file": False, **columns}, clock="date", on_grid=how
    )  # type: ignore[arg-type]
    return list(RowStream(str(path), read).chunks())


def test_series_of_a_file_keep_their_names_and_times_their_type_and_zone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(row_stream, "CHUNK_CELLS", 12)  # chunks of four rows
    times = [START + timedelta(seconds=20 * i) for i in range(9)]
    frame = pl.DataFrame({"t": times * 2, "s": ["x"] * 9 + ["y"] * 9, "a": np.arange(18.0)})
    frame = frame.with_columns(pl.col("t").dt.cast_time_unit("ms").dt.convert_time_zone("Europe/Berlin"))
    frame.write_parquet(tmp_path / "x.parquet")
    chunks = on_grid(tmp_path / "x.parquet", "1m", series_column="s")
    carried = pl.concat([chunk.carried for chunk in chunks])
    assert carried.schema == frame.select("s", "t").schema
    assert carried["s"].to_list() == ["x"] * 3 + ["y"] * 3
    assert carried["t"].to_list() == frame["t"].gather([0, 3, 6, 0, 3, 6]).to_list()
    assert np.concatenate([chunk.values for chunk in chunks]).ravel().tolist() == [1, 4, 7, 10, 13, 16]
    assert [name for chunk in chunks for _, name in chunk.starts] == ["x", "y"]
    table = read_table(
        str(tmp_path / "x.parquet"),
        time_column="t",
        series_column="s",
        on_grid=OnGrid(Grid(interval_s=60.0), 3, carry=True),
    )
    assert table.series == [("x", 3), ("y", 3)]
    assert table.values.ravel().tolist() == [1, 4, 7, 10, 13, 16]
    assert table.read_rows == 18


def test_files_that_are_series_of_their_own_may_be_empty(tmp_path: Path) -> None:
    frame = pl.DataFrame({"t": [START], "a": [1.0]})
    frame.clear().write_parquet(tmp_path / "0.parquet")
    frame.write_parquet(tmp_path / "1.parquet")
    chunks = on_grid(tmp_path, "1m", series_per_file=True)
    assert [len(chunk.values) for chunk in chunks] == [0, 1]
    assert [Path(name).name for chunk in chunks for _, name in chunk.starts] == ["0.parquet", "1.parquet"]


def test_times_that_cannot_lie_on_a_grid_are_refused(tmp_path: Path) -> None:
    pl.DataFrame({"t": [date(2024, 1, 1), date(2024, 1, 3)], "a": [1.0, 2.0]}).write_parquet(tmp_path / "x.parquet")
    assert [len(chunk.values) for chunk in on_grid(tmp_path / "x.parquet", "1d")] == [1, 2]
    with pytest.raises(
        DataError, match=r"column 't': is Date, an interval of 1h \(mean\) is not a whole number of days"
    ):
        on_grid(tmp_path / "x.parquet", "1h")
    pl.DataFrame({"t": [1, 2], "a": [1.0, 2.0]}).write_parquet(tmp_path / "x.parquet")
    with pytest.raises(DataError, match="column 't': is Int64, an interval needs dates and times"):
        on_grid(tmp_path / "x.parquet", "1h")


def test_an_interval_is_a_number_and_a_unit() -> None:
    assert [str(choose_grid(text, None, None)) for text in ("30s", "90s", "5m", "24h", "0.5s")] == [
        "30s (mean)",
        "90s (mean)",
        "5m (mean)",
        "1d (mean)",
        "0.5s (mean)",
    ]
    known = Grid(interval_s=60.0, resample="last")
    assert choose_grid(None, None, known) is known
    assert choose_grid("2m", None, known) == Grid(interval_s=120.0, resample="last")
    assert choose_grid("none", None, known) is None
    for text in ("60", "5 m", "-1s", "1w", "0s", "400d"):
        with pytest.raises(ConfigError, match="interval: "):
            choose_grid(text, None, None)
    with pytest.raises(ConfigError, match="resample: "):
        choose_grid(None, "last", None)
    with pytest.raises(ConfigError, match="max_gap: rows on a grid need a limit"):
        grid_max_gap(0)
    with pytest.raises(ConfigError, match="max_gap: 1001 is too large"):
        grid_max_gap(1001)
