"""Cutting work: every row once, every window whole, and scores that do not know they were computed apart."""

import json
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from at_infer.cluster.inputs import count_short, find_series
from at_infer.cluster.run import score_on_workers
from at_infer.cluster.splits import (
    LEAST_HALOS,
    SPLIT_S,
    SPLITS_PER_WORKER,
    Offsets,
    SeriesSpan,
    choose_split_rows,
    cut,
    pack,
)
from at_infer.config import ScoreConfig
from at_infer.errors import DataError
from at_infer.models.season import Season
from at_infer.models.spacing import Spacing
from at_infer.scoring.options import ScoreOptions
from at_infer.scoring.score_file import score_file
from at_infer.scoring.settings import RowSettings
from at_infer.scoring.windows import MovingMean
from at_infer.scoring.windows import WindowLayout as Layout
from at_infer.tables.columns import Columns, Place, Survey
from tests.exported import metadata
from tests.in_process import EasyEngine, Opener, read_splits
from tests.options import by_kind

WINDOW = 8
PLAIN = Layout(window=WINDOW, stride=WINDOW)
NAMES = metadata().columns
SEASON = Season(offset_s=60.0, profile=[np.sin(np.arange(24)).tolist(), [], np.cos(np.arange(24)).tolist()])
SEASONAL = {"season": SEASON, "time_column": "t"}

layouts = st.one_of(
    st.builds(Layout, window=st.integers(2, 12), stride=st.integers(1, 2)),
    st.integers(2, 12).map(lambda n: Layout(window=n, stride=n)),
    st.integers(2, 12).map(lambda n: Layout(window=n, stride=1, align="last")),
)
cuts = {
    "layout": layouts,
    "smooth": st.integers(1, 9),
    "first": st.integers(0, 50),
    "rows": st.integers(1, 300),
    "split_rows": st.integers(1, 100),
}


def row_settings(layout: Layout, smooth: int = 1) -> RowSettings:
    causal = layout.align == "last"
    return RowSettings(
        layout=layout,
        columns=NAMES,
        mean=[0.0] * len(NAMES),
        finish=lambda: MovingMean(smooth, causal=causal),
        reach=(smooth, 0 if causal else smooth),
    )


# Pieces of a series


@given(**cuts)
@pytest.mark.slow
def test_pieces_hold_every_row_once_and_in_order(
    layout: Layout, smooth: int, first: int, rows: int, split_rows: int
) -> None:
    pieces = cut(SeriesSpan("s", first, first + rows), row_settings(layout, smooth), split_rows)
    assert [row for piece in pieces for row in range(piece.first, piece.end)] == list(range(first, first + rows))
    assert all(piece.rows < split_rows + layout.stride for piece in pieces)


@given(**cuts)
def test_a_piece_is_read_with_its_halo_and_on_the_grid_of_its_series(
    layout: Layout, smooth: int, first: int, rows: int, split_rows: int
) -> None:
    series = SeriesSpan("s", first, first + rows)
    before, after = row_settings(layout, smooth).lookback, row_settings(layout, smooth).lookahead
    assert before == layout.window - 1 + smooth
    assert after == (0 if layout.align == "last" else before)
    for piece in cut(series, row_settings(layout, smooth), split_rows):
        assert (piece.read_first - series.first) % layout.stride == 0
        assert series.first <= piece.read_first <= max(series.first, piece.first - before)
        assert min(series.end, piece.end + after) <= piece.read_end <= series.end
        if piece.read_end < series.end:  # or the rule for the end of a series would add a window
            assert (piece.read_end - piece.read_first - layout.window) % layout.stride == 0


# Splits


@given(st.lists(st.integers(1, 60), min_size=1, max_size=12), st.integers(1, 50))
def test_short_series_share_a_split_and_long_ones_have_several(lengths: list[int], split_rows: int) -> None:
    ends = np.cumsum(lengths).tolist()
    series = [SeriesSpan(str(i), end - rows, end) for i, (rows, end) in enumerate(zip(lengths, ends, strict=True))]
    splits = pack((piece for one in series for piece in cut(one, row_settings(PLAIN), split_rows)), split_rows)
    assert [row for split in splits for row in range(split.first, split.end)] == list(range(ends[-1]))
    for split in splits:
        assert len(split.pieces) == 1 or all(piece.is_whole for piece in split.pieces)
        assert len(split.pieces) == 1 or split.rows <= split_rows
    for one, other in pairwise(splits):  # nothing more would have fitted in
        if one.pieces[0].is_whole and other.pieces[0].is_whole:
            assert one.rows + other.pieces[0].rows > split_rows


def test_a_split_can_be_halved_until_one_series_is_left() -> None:
    pieces = [cut(SeriesSpan(str(i), 10 * i, 10 * i + 10), row_settings(PLAIN), 10)[0] for i in range(5)]
    (split,) = pack(pieces, 100)
    left, right = split.halves() or pytest.fail("it has five series")
    assert (left.first, left.end, right.first, right.end) == (0, 20, 20, 50)
    assert left.halves() is not None
    assert pack(pieces[:1], 100)[0].halves() is None


def test_pieces_that_do_not_touch_are_not_put_together() -> None:
    pieces = [cut(SeriesSpan(str(i), 20 * i, 20 * i + 10), row_settings(PLAIN), 10)[0] for i in range(2)]
    assert len(pack(pieces, 100)) == 2


def test_a_split_is_some_seconds_of_work_but_not_too_much_for_few_rows() -> None:
    layout = Layout(window=100, stride=100)

    def chosen(rows: int, rows_per_s: float, workers: int) -> int:
        return choose_split_rows(rows, row_settings(layout), rows_per_s=rows_per_s, workers=workers)

    assert chosen(10**12, 10_000.0, 1000) == 10_000 * SPLIT_S
    assert chosen(10**6, 10_000.0, 2) == 10**6 // (2 * SPLITS_PER_WORKER)
    assert chosen(1000, 10_000.0, 2) == LEAST_HALOS * 100
    assert chosen(10**12, 1e-3, 2) == LEAST_HALOS * 100


def test_rows_of_the_input_are_found_in_its_files() -> None:
    offsets = Offsets([3, 0, 4, 2])
    assert [offsets.locate(row) for row in range(9)] == [
        (0, 0),
        (0, 1),
        (0, 2),
        *((2, i) for i in range(4)),
        (3, 0),
        (3, 1),
    ]
    assert offsets.between(2, 8) == [(0, 2, 3), (2, 0, 4), (3, 0, 1)]
    assert offsets.between(4, 4) == []


# Series of an input


def place(name: str) -> Place:
    return Place(name, f"/{name}", False, 1, 1)


def columns(*, series: str | None = None, time: str | None = None, per_file: bool = False) -> Columns:
    return Columns(("a",), time, series, per_file)


def lengths(found: Any) -> list[tuple[str, int, int]]:
    return [(series.name, series.first, series.end) for series in found.series]


def test_files_are_one_series_unless_told_otherwise() -> None:
    places, surveys = [place("1"), place("2"), place("3")], [Survey(3), Survey(0), Survey(4)]
    assert lengths(find_series(places, surveys, columns())) == [("", 0, 7)]
    found = find_series(places, surveys, columns(per_file=True))
    assert lengths(found) == [("1", 0, 3), ("3", 3, 7)]
    assert found.empty_series == 1


def test_a_series_may_go_on_in_the_next_file() -> None:
    places = [place("1"), place("2"), place("3")]
    surveys = [Survey(5, (("a", 0), ("b", 3))), Survey(2, (("b", 0),)), Survey(4, (("b", 0), ("c", 1)))]
    assert lengths(find_series(places, surveys, columns(series="s"))) == [("a", 0, 3), ("b", 3, 8), ("c", 8, 11)]
    apart = find_series(places, surveys, columns(series="s", per_file=True))
    assert lengths(apart)[2:4] == [("2: b", 5, 7), ("3: b", 7, 8)]


def test_a_file_that_cannot_be_used_leaves_the_others_as_they_are() -> None:
    places = [place(name) for name in "12345"]
    surveys: list[Survey | str] = [
        Survey(5, (("a", 0),), (("s", "String"),)),
        "2: is damaged",
        Survey(2, (("c", 0),), (("s", "Int64"),)),
        Survey(4, (("d", 0), ("a", 1)), (("s", "String"),)),
        Survey(3, (("e", 0),), (("s", "String"),)),
    ]
    found = find_series(places, surveys, columns(series="s"))
    assert lengths(found) == [("a", 0, 5), ("e", 5, 8)]
    assert found.errors[1] == "2: is damaged"
    assert found.errors[2] == "3: column 's' is Int64 but in 1 it is String; use the same type"
    assert found.errors[3] == "4: row 1: series 'a' starts again; sort the rows by s and time"


def test_rows_behind_a_file_of_unknown_length_cannot_be_numbered() -> None:
    places, surveys = [place(name) for name in "123"], [Survey(3), "2: is damaged", Survey(4)]
    found = find_series(places, surveys, columns(per_file=True))
    assert lengths(found) == [("1", 0, 3)]
    assert found.errors[2] == "3: its rows cannot be numbered before 2 is mended"
    with_time = find_series(places, surveys, columns(per_file=True, time="t"))
    assert lengths(with_time) == [("1", 0, 3), ("3", 3, 7)]


def test_a_gap_in_time_ends_a_stretch_of_a_series_within_a_file_or_between_two() -> None:
    places = [place(name) for name in "123"]
    surveys = [
        Survey(5, (("a", 0), ("b", 3)), gaps=(2,), span=(0, 9)),
        Survey(2, (("b", 0),), span=(10, 11)),
        Survey(4, (("b", 0), ("c", 1)), gaps=(3,), span=(20, 90)),
    ]
    found = find_series(places, surveys, columns(series="s"), 3.5)
    assert lengths(found) == [("a", 0, 2), ("a", 2, 3), ("b", 3, 7), ("b", 7, 8), ("c", 8, 10), ("c", 10, 11)]
    assert found.gaps == 3
    one = find_series(places, [replace(survey, runs=()) for survey in surveys], columns(), 3.5)
    assert lengths(one) == [("", 0, 2), ("", 2, 7), ("", 7, 10), ("", 10, 11)]
    assert count_short(found, 3, "skip", "in") == (2, 5)
    with pytest.raises(DataError, match=r"series 'a': has at most 2 rows without a gap in time, fewer than .* of 3"):
        count_short(found, 3, "error", "in")
    assert count_short(found, 2, "error", "in") == (0, 3)


# Scores


def write(folder: Path, files: list[pl.DataFrame]) -> Path:
    folder.mkdir(parents=True)
    for number, frame in enumerate(files):
        frame.write_parquet(folder / f"{number:03}.parquet", row_group_size=17)
    return folder


def make_rows(series: list[int], seed: int, gaps: int, infinities: int) -> pl.DataFrame:
    """Series of these lengths, one after another, with gaps and infinities in any place."""
    rng = np.random.default_rng(seed)
    count = sum(series)
    values = rng.normal(size=(count, len(NAMES))).astype(np.float32)
    for what, how_many in ((np.nan, gaps), (np.inf, infinities)):
        for _ in range(how_many):
            at, length = int(rng.integers(count)), int(rng.integers(1, 40))
            values[at : at + length if np.isnan(what) else at + 1, rng.integers(len(NAMES))] = what
    frame = pl.DataFrame(values, schema=NAMES).with_columns(
        s=pl.Series([str(i) for i, rows in enumerate(series) for _ in range(rows)]),
        t=pl.int_range(count),
    )
    return frame.with_columns(pl.col(NAMES[0]).fill_nan(None))  # gaps may be null or NaN


def with_clock(frame: pl.DataFrame) -> pl.DataFrame:
    """The same rows, 40 minutes apart."""
    return frame.with_columns(t=pl.from_epoch(2400 * pl.col("t")))


def both_ways(
    source: Path, folder: Path, options: ScoreOptions, *, split_rows: int, **given: Any
) -> tuple[pl.DataFrame, dict[str, Any], pl.DataFrame, dict[str, Any]]:
    """Frame and counts of the plain command, and of three workers."""
    engine = folder / "model.onnx"
    engine.write_bytes(b"opened by a stand-in")
    plain = score_file(source, engine, folder / "plain.parquet", options, **by_kind(batch_size=4, **given))
    apart = score_on_workers(
        source,
        engine,
        folder / "apart",
        options,
        open_workers=Opener(3),
        split_rows=split_rows,
        **by_kind(batch_size=5, **given),
    )
    names = ["rows", "series", "windows", "anomalies", "segments", "unscored_rows", "bad_windows", "short_series"]
    names += ["gaps", "short_stretches", "missing_features"]
    told = [{name: getattr(summary, name) for name in names} for summary in (plain, apart)]
    return pl.read_parquet(folder / "plain.parquet"), told[0], read_splits(folder / "apart"), told[1]


@pytest.mark.slow
@settings(max_examples=20)
@given(
    series=st.lists(st.integers(1, 90), min_size=1, max_size=4),
    parts=st.lists(st.integers(1, 120), max_size=4),
    split_rows=st.integers(4, 60),
    stride=st.sampled_from([None, 1, 3, WINDOW]),
    causal=st.booleans(),
    smooth=st.sampled_from([1, 2, 5]),
    fill=st.sampled_from(["error", "forward", "mean"]),
    short=st.sampled_from(["skip", "pad"]),
    layout=st.sampled_from(["one", "column", "file", "column and file"]),
    keep_time=st.booleans(),
    seasonal=st.booleans(),
    mask=st.booleans(),
    gaps=st.integers(0, 4),
    pauses=st.lists(st.integers(0, 500), max_size=12),
    infinities=st.integers(0, 2),
    threshold=st.sampled_from([0.0, 10.0]),
    seed=st.integers(0, 1000),
)
def test_splits_score_every_row_as_the_plain_command_does(
    tmp_path_factory: pytest.TempPathFactory,
    series: list[int],
    parts: list[int],
    split_rows: int,
    stride: int | None,
    causal: bool,
    smooth: int,
    fill: Any,
    short: Any,
    layout: str,
    keep_time: bool,
    seasonal: bool,
    mask: bool,
    gaps: int,
    pauses: list[int],
    infinities: int,
    threshold: float,
    seed: int,
) -> None:
    folder = tmp_path_factory.mktemp("both")
    frame = make_rows(series, seed, gaps, infinities)
    pause = 3 * pl.sum_horizontal(pl.lit(0), *(pl.int_range(pl.len()) >= at for at in pauses))
    frame = frame.with_columns(t=pl.col("t") + pause)
    if seasonal:
        frame = with_clock(frame)
    bounds = sorted({0, frame.height, *(part % frame.height for part in parts)})
    files = [frame[first:end] for first, end in pairwise(bounds)]
    source = write(folder / "in", files)
    options = ScoreOptions(
        stride=None if causal else stride,
        align="last" if causal else "window",
        smooth=smooth,
        threshold=threshold,
        short_series="skip" if causal else short,
        on_bad_rows="null",
        on_missing_feature="mask" if mask else "error",
    )
    with pytest.MonkeyPatch.context() as patch:
        spacing = Spacing(step=2400.0, clock="date") if seasonal else Spacing(step=1.0, clock="number")
        known = metadata(
            fill=fill, spacing=spacing, score=ScoreConfig(mode="reconstruction"), **SEASONAL if seasonal else {}
        )
        patch.setattr("at_infer.scoring.scorer.open_engine", lambda path, **_: EasyEngine(Path(path), known))
        patch.setattr("at_infer.tables.row_stream.CHUNK_CELLS", 5 * 40)
        patch.setattr("at_infer.tables.ranges.LOOK_BACK_ROWS", (3, 10))
        expected, counts, found, found_counts = both_ways(
            source,
            folder,
            options,
            split_rows=split_rows,
            series_column="s" if "column" in layout else None,
            series_per_file="file" in layout,
            time_column="t" if keep_time else None,
        )
    assert found.equals(expected, null_equal=True)
    assert found.schema == expected.schema
    assert found_counts == counts


@pytest.fixture
def easy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An engine file that opens as one that costs nothing."""
    monkeypatch.setattr(
        "at_infer.scoring.scorer.open_engine", lambda path, **_: EasyEngine(Path(path), metadata(fill="forward"))
    )
    path = tmp_path / "model.onnx"
    path.write_bytes(b"opened by a stand-in")
    return path


@pytest.mark.slow
def test_a_gap_at_a_seam_is_filled_from_as_far_back_as_it_takes(
    easy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    frame = make_rows([200], 0, 0, 0)
    frame = frame.with_columns(
        pl.when(pl.int_range(pl.len()) > 3).then(None).otherwise(pl.col(NAMES[1])).alias(NAMES[1])
    )
    source = write(tmp_path / "in", [frame[:70], frame[70:]])
    monkeypatch.setattr("at_infer.tables.ranges.LOOK_BACK_ROWS", (2, 16))
    expected, _, found, _ = both_ways(source, tmp_path, ScoreOptions(), split_rows=16)
    assert found.equals(expected)
    other = frame.with_columns(pl.lit(None, pl.Float32).alias(NAMES[1]))
    source = write(tmp_path / "in2", [other])
    (tmp_path / "2").mkdir()
    expected, _, found, _ = both_ways(source, tmp_path / "2", ScoreOptions(), split_rows=16)
    assert found.equals(expected)


@pytest.mark.slow
def test_a_gap_at_a_seam_repeats_a_deviation_from_the_season(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    known = metadata(fill="forward", **SEASONAL)
    monkeypatch.setattr("at_infer.scoring.scorer.open_engine", lambda path, **_: EasyEngine(Path(path), known))
    monkeypatch.setattr("at_infer.tables.ranges.LOOK_BACK_ROWS", (2, 16))
    frame = with_clock(make_rows([200], 0, 0, 0)).with_columns(
        pl.when(pl.int_range(pl.len()) > 3).then(None).otherwise(pl.col(NAMES[2])).alias(NAMES[2])
    )
    source = write(tmp_path / "in", [frame[:70], frame[70:]])
    expected, _, found, _ = both_ways(source, tmp_path, ScoreOptions(), split_rows=16)
    assert found.equals(expected)


def test_explanations_are_the_same_too(easy: Path, tmp_path: Path) -> None:
    source = write(tmp_path / "in", [make_rows([100, 60], 0, 1, 0)])
    expected, _, found, _ = both_ways(
        source, tmp_path, ScoreOptions(explain="all", stride=3), split_rows=24, series_column="s"
    )
    assert found.equals(expected)
    assert "top_feature" in found.columns


def test_both_ways_say_that_a_model_has_no_threshold_for_last_rows(easy: Path, tmp_path: Path) -> None:
    source = write(tmp_path / "in", [make_rows([60], 0, 0, 0)])
    said: list[str] = []
    both_ways(source, tmp_path, ScoreOptions(align="last"), split_rows=24, say=said.append)
    assert len(said) == 2
    assert all("has no threshold for last rows of windows" in note for note in said)


def test_a_hive_tree_keeps_its_keys(easy: Path, tmp_path: Path) -> None:
    for machine in (1, 2):
        frame = make_rows([50], machine, 0, 0).drop("s")
        write(tmp_path / "in" / f"machine={machine}", [frame])
    expected, _, found, _ = both_ways(
        tmp_path / "in", tmp_path, ScoreOptions(), split_rows=30, series_column="machine", time_column="t"
    )
    assert found.equals(expected)
    assert found.columns == ["machine", "t", "score", "is_anomaly"]


def test_one_row_of_a_split_tells_how_it_came_about(easy: Path, tmp_path: Path) -> None:
    source = write(tmp_path / "in", [make_rows([100], 0, 0, 0)])
    both_ways(source, tmp_path, ScoreOptions(threshold=1.5), split_rows=40)
    told = pl.read_parquet_metadata(min((tmp_path / "apart").glob("*.parquet")))
    plain = pl.read_parquet_metadata(tmp_path / "plain.parquet")
    assert {name: text for name, text in told.items() if name != "at_infer.split"} == plain
    assert json.loads(told["at_infer.split"])["rows"] == 40
