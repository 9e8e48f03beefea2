"""Outputs: what a command may replace, and what is planted beside them."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from at_infer.errors import OutputError
from at_infer.tables.parts import Parts
from tests.checkpoints import checkpoint
from tests.scored import Score, files, rows


def test_scores_never_replace_a_pipe_the_model_or_its_sidecar(
    models: Path, tmp_path: Path, run_cli: Callable[..., Any]
) -> None:
    model, data, pipe = tmp_path / "model.onnx", tmp_path / "data.parquet", tmp_path / "pipe"
    model.write_bytes((models / "model.onnx").read_bytes())
    rows(60).write_parquet(data)
    os.mkfifo(pipe)
    for output in (pipe, model, data):
        answer = run_cli("score", data, "--engine", model, "-o", output, "--overwrite")
        assert answer.code == 1
        assert "choose another output" in answer.err
    assert pipe.is_fifo()
    assert model.read_bytes() == (models / "model.onnx").read_bytes()
    assert pl.read_parquet(data).height == 60


def test_a_state_of_watch_never_replaces_the_model(models: Path, tmp_path: Path, run_cli: Callable[..., Any]) -> None:
    model = tmp_path / "model.onnx"
    model.write_bytes((models / "model.onnx").read_bytes())
    answer = run_cli("watch", "--engine", model, "--state", model, "--no-time")
    assert answer.code == 1
    assert "is also the input" in answer.err


def test_a_checkpoint_never_replaces_the_data(tmp_path: Path, run_cli: Callable[..., Any]) -> None:
    data = tmp_path / "data.parquet"
    rows(60).write_parquet(data)
    answer = run_cli("train", data, "-o", data, "--overwrite")
    assert answer.code == 1
    assert "is also the input" in answer.err
    assert pl.read_parquet(data).height == 60


@pytest.mark.slow
def test_every_command_says_that_it_replaces_a_link(models: Path, tmp_path: Path, run_cli: Callable[..., Any]) -> None:
    model, ckpt, victim = models / "model.onnx", tmp_path / "ckpt.pt", tmp_path / "victim"
    victim.write_text("precious")
    checkpoint().save(ckpt)
    rows(60).write_parquet(tmp_path / "data.parquet")
    (tmp_path / "model.associations.onnx").mkdir()  # the export ends before its long work
    for link, words in (
        ("train.parquet", ["generate", "-o", tmp_path, "--overwrite", "--rows", 300, 300, 300]),
        ("model.onnx", ["export", ckpt, "-o", tmp_path, "--overwrite"]),
        ("copy.onnx", ["threshold", model, "--method", "ratio", "-o", tmp_path / "copy.onnx", "--overwrite"]),
        ("plot.svg", ["bench", "--engine", tmp_path / "absent.onnx", "--plot", tmp_path / "plot.svg"]),
        ("out", ["score", tmp_path / "data.parquet", "--engine", model, "-o", tmp_path / "out", "--overwrite"]),
        ("page", ["report", tmp_path / "absent.parquet", "-o", tmp_path / "page", "--overwrite"]),
        ("state", ["watch", "--engine", model, "--state", tmp_path / "state"]),
        ("new.pt", ["train", tmp_path / "absent.parquet", "-o", tmp_path / "new.pt", "--overwrite"]),
    ):
        (tmp_path / link).symlink_to(victim)
        answer = run_cli(*words)
        note = f"note: {tmp_path / link}: is a link to {victim}; the link is replaced, {victim} stays as it is\n"
        assert answer.err.count(note) == 1, words
        assert victim.read_text() == "precious"


def test_scores_keep_the_mode_of_what_they_replace(score: Score, tmp_path: Path) -> None:
    (tmp_path / "scores.parquet").touch(mode=0o600)
    score(rows(60))
    assert (tmp_path / "scores.parquet").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("name", ["run[1].parquet", "run*.parquet", "run?.parquet", "{run}.parquet", "a=1 b.parquet"])
def test_a_name_of_glob_characters_is_a_name(score: Score, tmp_path: Path, name: str) -> None:
    other = tmp_path / ".run1.parquet.parts"
    other.mkdir()
    pl.DataFrame({"row": range(60), "score": [7.0] * 60, "is_anomaly": [True] * 60}).write_parquet(
        other / "00000000.12345678.parquet"
    )
    usual = score(rows(60)).frame
    assert score(rows(60), output=tmp_path / name).frame.equals(usual)
    assert (other / "00000000.12345678.parquet").exists()


def test_parts_in_a_folder_named_like_a_partition_are_as_they_are(score: Score, tmp_path: Path) -> None:
    (tmp_path / "day=1").mkdir()
    assert score(rows(60), output=tmp_path / "day=1" / "s.parquet").frame.columns == ["row", "score", "is_anomaly"]


def test_parts_that_were_replaced_while_a_run_was_under_way_are_not_published(tmp_path: Path) -> None:
    parts = Parts(tmp_path / "out.parquet")
    parts.begin({"identity": {"run": 1}, "batch_size": 8})
    parts.write(pl.DataFrame({"row": [0]}), {"score": np.zeros(1, np.float32), "is_anomaly": np.zeros(1, np.bool_)})
    (parts.folder / "journal.json").write_text(json.dumps({"identity": {"run": 2}, "batch_size": 8}))
    with pytest.raises(OutputError, match="was changed by someone else"):
        parts.publish({})
    parts.release()
    assert not (tmp_path / "out.parquet").exists()


def test_a_planted_link_in_place_of_the_parts_loses_no_file(score: Score, tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.mkdir()
    (victim / "precious").write_text("x")
    (tmp_path / ".scores.parquet.parts").symlink_to(victim)
    for resume in (False, True):
        with pytest.raises(OutputError, match=r"\.parts: is a link or belongs to someone else"):
            score(rows(60), resume=resume)
    assert files(victim) == {"precious"}


def test_a_planted_lock_is_neither_followed_nor_truncated(score: Score, tmp_path: Path) -> None:
    victim, folder = tmp_path / "victim", tmp_path / ".scores.parquet.parts"
    victim.write_text("precious")
    folder.mkdir()
    (folder / "lock").symlink_to(victim)
    with pytest.raises(OutputError):
        score(rows(60))
    assert victim.read_text() == "precious"


def test_only_what_a_run_has_written_is_removed(score: Score, tmp_path: Path) -> None:
    folder = tmp_path / ".scores.parquet.parts"
    folder.mkdir()
    for name in ("notes.txt", "00000007.parquet", "00000008.12345678.parquet", "journal.json"):
        (folder / name).write_text("x")
    score(rows(60))
    assert files(folder) == {"notes.txt"}


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_parts_of_someone_else_are_refused(score: Score, tmp_path: Path) -> None:
    folder = tmp_path / ".scores.parquet.parts"
    folder.mkdir()
    os.chown(folder, 12345, 12345)
    with pytest.raises(OutputError, match="belongs to someone else"):
        score(rows(60))


def test_a_damaged_part_of_an_unfinished_run_is_not_published(
    score: Score, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*_: Any) -> None:
        raise OutputError("disk full")

    rows(60).write_parquet(source := tmp_path / "data.parquet")
    with monkeypatch.context() as patch:
        patch.setattr(Parts, "publish", stop)
        with pytest.raises(OutputError, match="60 rows are kept"):
            score(source)
    (part,) = (tmp_path / ".scores.parquet.parts").glob("0*.parquet")
    content = bytearray(part.read_bytes())
    content[100] ^= 1
    part.write_bytes(content)
    with pytest.raises(OutputError, match="is damaged; start again without `resume`"):
        score(source, resume=True)
    assert not (tmp_path / "scores.parquet").exists()


@pytest.mark.parametrize("text", ["[]", "{}", "null", '{"identity": 1, "batch_size": 8}', "[" * 100_000, "\xff"])
def test_a_damaged_journal_starts_the_run_again(score: Score, tmp_path: Path, text: str) -> None:
    folder = tmp_path / ".scores.parquet.parts"
    folder.mkdir()
    (folder / "journal.json").write_text(text, encoding="latin-1")
    assert score(rows(60), resume=True).summary.resumed_rows == 0


def test_a_pipe_in_place_of_a_journal_is_no_journal(tmp_path: Path) -> None:
    parts = Parts(tmp_path / "out.parquet")
    parts.folder.mkdir()
    os.mkfifo(parts.folder / "journal.json")
    assert parts.journal() is None
