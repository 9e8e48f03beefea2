"""Inputs that are no files, never end, lead in circles, or ask for much."""

import os
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx
import polars as pl
import pytest

from at_infer.errors import DataError, ExportError
from at_infer.live.times import moment
from at_infer.memory import available_bytes
from at_infer.models.signatures import onnx_digest
from at_infer.tables.files import CHUNK_CELLS, InputFile, source_files
from export.config import ExportConfig
from tests.scored import Score, rows


@pytest.mark.parametrize("time", [10**400, -(10**400), "9" * 400, "9" * 5_000, "-" + "9" * 400, "1e400", float("nan")])
def test_a_time_of_hundreds_of_digits_is_no_time(time: Any) -> None:
    with pytest.raises(DataError, match="is neither a number nor a date and time"):
        moment(time)


@pytest.mark.parametrize("name", ["../../evil", "/evil", "a/b", "", ".", "..", "a\0b", "x" * 300])
def test_a_name_of_an_export_is_checked_first(name: str) -> None:
    with pytest.raises(ExportError, match="is not a prefix of file names"):
        ExportConfig(name=name)


def test_a_pattern_does_not_follow_links_that_lead_in_circles(tmp_path: Path) -> None:
    for name in ("a", "b", "c"):
        (tmp_path / name).mkdir()
        for link in ("x", "y", "z"):
            (tmp_path / name / link).symlink_to(tmp_path)
    rows(30).write_parquet(tmp_path / "a" / "data.parquet")
    (tmp_path / ".hidden").mkdir()
    rows(30).write_parquet(tmp_path / ".hidden" / "data.parquet")
    for source in (f"{tmp_path}/**/*.parquet", f"{tmp_path}/*/*.parquet", str(tmp_path)):
        assert source_files(source) == [tmp_path / "a" / "data.parquet"]
    assert source_files(f"{tmp_path}/.hid*/*.parquet") == [tmp_path / ".hidden" / "data.parquet"]
    with pytest.raises(DataError, match=r"no file matches|is not a pattern"):
        source_files(f"{tmp_path}/**.parquet/[")


@pytest.mark.slow
def test_pipes_and_devices_are_refused_at_once(models: Path, tmp_path: Path, run_cli: Callable[..., Any]) -> None:
    pipe, data = tmp_path / "pipe.onnx", tmp_path / "data.parquet"
    os.mkfifo(pipe)
    (tmp_path / "zero.onnx").symlink_to("/dev/zero")
    (tmp_path / "plan.trt").symlink_to("/dev/zero")
    rows(60).write_parquet(data)
    model, output = models / "model.onnx", tmp_path / "out"
    for path in (pipe, tmp_path / "zero.onnx", tmp_path / "plan.trt", Path("/dev/zero")):
        for words in (
            ["inspect", path],
            ["score", data, "--engine", path, "-o", output],
            ["score", path, "--engine", model, "-o", output],
            ["watch", "--engine", model, "--no-time", "--state", path],
            ["threshold", path],
            ["evaluate", path],
            ["export", path],
            ["report", path, "-o", output],
        ):
            done: list[Any] = []
            worker = threading.Thread(target=lambda words=words, done=done: done.append(run_cli(*words)), daemon=True)
            worker.start()
            worker.join(60)
            assert done, words  # it waits for a pipe
            assert done[0].code == 1, words
            assert done[0].err.count("\n") == 1


def test_a_csv_of_millions_of_columns_is_refused(models: Path, tmp_path: Path, run_cli: Callable[..., Any]) -> None:
    path = tmp_path / "data.csv"
    path.write_text("," * 5_000_000)
    answer = run_cli("score", path, "--engine", models / "model.onnx", "-o", tmp_path / "out")
    assert answer.code == 1
    assert "its first line is not a header" in answer.err


def test_rows_that_do_not_fit_into_memory_are_refused_before_they_are_read(
    tmp_path: Path, run_cli: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "data.parquet"
    rows(60).with_columns(score=0.5, label=0).write_parquet(path)
    assert (available_bytes() or 1) > 0
    monkeypatch.setattr("at_infer.memory.available_bytes", lambda: 400)
    for words in (["train", path, "-o", tmp_path / "ckpt.pt"], ["evaluate", path]):
        answer = run_cli(*words)
        assert answer.code == 1
        assert "of memory are free; use fewer rows or columns" in answer.err


def test_a_bomb_is_read_in_chunks_of_bounded_size(tmp_path: Path) -> None:
    path = tmp_path / "bomb.parquet"
    zeros = pl.select(pl.repeat(0.0, 5_000_000, dtype=pl.Float32).alias("f00")).with_columns(f01="f00", f02="f00")
    zeros.write_parquet(path, row_group_size=5_000_000)
    assert path.stat().st_size < 50_000
    file = InputFile.open(path)
    heights = [chunk.height for _, chunk in file.chunks(["f00", "f01", "f02"])]
    assert sum(heights) == 5_000_000
    assert max(heights) * 3 <= CHUNK_CELLS


def test_a_flipped_bit_in_the_weights_is_found(models: Path, tmp_path: Path, run_cli: Callable[..., Any]) -> None:
    content = bytearray((models / "model.onnx").read_bytes())
    weights = max(onnx.load(models / "model.onnx").graph.initializer, key=lambda tensor: len(tensor.raw_data)).raw_data
    content[content.index(weights) + len(weights) // 2] ^= 1
    model = tmp_path / "model.onnx"
    model.write_bytes(content)
    for words in (["threshold", model], ["inspect", model]):
        answer = run_cli(*words)
        assert answer.code == 1
        assert "was modified after the export" in answer.err + answer.out
    with (models / "model.onnx").open("rb") as file:
        recorded, found = onnx_digest(file)
    assert recorded == found


def test_a_temperature_that_does_nothing_is_refused(models: Path, tmp_path: Path, run_cli: Callable[..., Any]) -> None:
    rows(60).write_parquet(tmp_path / "data.parquet")
    words = ["score", tmp_path / "data.parquet", "--engine", models / "model.onnx", "-o", tmp_path / "out"]
    answer = run_cli(*words, "--temperature", 3, "--threshold", 1)
    assert answer.code == 1
    assert "--temperature: mode fusion does not use it" in answer.err


def test_generated_files_are_all_there_or_none(
    tmp_path: Path, run_cli: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    write, written = pl.DataFrame.write_parquet, []

    def full(frame: pl.DataFrame, path: Path, **options: Any) -> None:
        written.append(path)
        if len(written) == 3:
            raise OSError(28, os.strerror(28))
        write(frame, path, **options)

    monkeypatch.setattr(pl.DataFrame, "write_parquet", full)
    answer = run_cli("generate", "-o", tmp_path / "data", "--rows", 300, 300, 300)
    assert answer.code == 1
    assert "No space left on device" in answer.err
    assert list((tmp_path / "data").iterdir()) == []


def test_a_state_that_is_no_state_is_one_line(models: Path, tmp_path: Path, run_cli: Callable[..., Any]) -> None:
    state = tmp_path / "state"
    for text in ("[" * 50_000, "{}", "[]", '{"at_infer_stream": 2}', "9" * 5_000, "null", '{"at_infer_stream": [2]}'):
        state.write_text(text + "\n")
        answer = run_cli("watch", "--engine", models / "model.onnx", "--no-time", "--state", state)
        assert answer.code == 1, text[:30]
        assert answer.err.count("\n") == 1


def test_a_file_that_changes_while_it_is_read_is_no_mixed_output(score: Score, tmp_path: Path) -> None:
    source = tmp_path / "data.parquet"

    def change(done: int, total: int) -> None:
        rows(60, seed=1).write_parquet(source)

    def remove(done: int, total: int) -> None:
        source.unlink(missing_ok=True)

    for meddle in (change, remove):
        rows(60).write_parquet(source)
        with pytest.raises(DataError, match=r"was modified while it was read|cannot be read|damaged"):
            score(source, observe=meddle)
        assert not (tmp_path / "scores.parquet").exists()


def test_a_file_added_to_a_folder_meanwhile_is_not_part_of_the_run(score: Score, tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    rows(60).write_parquet(folder / "a.parquet")
    added = rows(60, seed=1)
    scored = score(folder, observe=lambda _done, _total: added.write_parquet(folder / "b.parquet"))
    assert scored.summary.rows == 60


def test_names_that_are_not_utf8_are_one_line(models: Path, tmp_path: Path, run_cli: Callable[..., Any]) -> None:
    """Of an output, it was said after everything had been scored, by a traceback."""
    folder = tmp_path / os.fsdecode(b"\xff")
    folder.mkdir()
    data = folder / "data.parquet"
    rows(60).write_parquet(tmp_path / "data.parquet")
    shutil.copy(tmp_path / "data.parquet", data)
    shutil.copy(models / "model.onnx", folder)
    engine = ["--engine", models / "model.onnx"]
    for words in (
        ["inspect", data],
        ["score", data, *engine, "-o", tmp_path / "out.parquet"],
        ["score", tmp_path / "data.parquet", *engine, "-o", folder / "out.parquet"],
        ["threshold", folder / "model.onnx"],
        ["generate", "-o", folder, "--rows", "300", "300", "300"],
    ):
        answer = run_cli(*words)
        assert answer.code == 1
        assert "its name is not UTF-8" in answer.err
    assert sorted(path.name for path in folder.iterdir()) == ["data.parquet", "model.onnx"]
