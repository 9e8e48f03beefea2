"""What a file says is shown by a terminal, not obeyed."""

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from at_infer.cli.terminal import printable
from tests.conftest import WriteParquet
from tests.scored import variant

ESCAPE = "\x1b]0;owned\x07\x1b[2J\x9b31mred\u202eback"
CONTROL = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]")


def test_escape_sequences_become_question_marks_and_lines_stay_lines() -> None:
    assert printable("a\x1b[2J\nb\tc") == "a?[2J\nb?c"
    assert printable("a\u202eb\u2066c\u2028d") == "a?b?c?d"  # direction, and a line that is none


def test_columns_of_a_parquet_file_are_inspected_without_escapes(
    write_parquet: WriteParquet, run_cli: Callable[..., Any]
) -> None:
    path = write_parquet("data.parquet", pl.DataFrame({ESCAPE: [1.0], "b": [ESCAPE]}))
    answer = run_cli("inspect", path)
    assert answer.code == 0
    assert "owned" in answer.out
    assert not CONTROL.search(answer.out + answer.err)


def test_metadata_of_a_model_are_inspected_without_escapes(
    models: Path, tmp_path: Path, run_cli: Callable[..., Any]
) -> None:
    path = variant(models / "model.onnx", tmp_path / "evil.onnx", precision=ESCAPE, at_infer=ESCAPE, alignment=ESCAPE)
    answer = run_cli("inspect", path)
    assert "owned" in answer.out
    assert not CONTROL.search(answer.out + answer.err)


@pytest.mark.slow
def test_notes_of_a_training_are_without_escapes(
    write_parquet: WriteParquet, tmp_path: Path, run_cli: Callable[..., Any]
) -> None:
    z = np.random.default_rng(0).normal(size=400)
    frame = pl.DataFrame({f"a{ESCAPE}": z, f"rising{ESCAPE}": np.arange(400.0), f"text{ESCAPE}": ["x"] * 400})
    path = write_parquet("data.parquet", frame)
    tiny = ["--width", 8, "--heads", 2, "--window", 10, "--max-steps", 2, "--threads", 1]
    answer = run_cli("train", path, "-o", tmp_path / "ckpt.pt", *tiny)
    assert answer.code == 0
    assert "owned" in answer.err
    assert not CONTROL.search(answer.out + answer.err)


PANICS = r"""
import os, sys, threading
from at_infer.native_stderr import speak_past_native_code, without_panics
speak_past_native_code()
with without_panics():
    def read():
        with without_panics():
            os.write(2, b"\nthread 'async-executor-1' (17) panicked at crates/x.rs:1:2:\nout of\nbounds\n"
                b"note: run with `RUST_BACKTRACE=1` environment variable to display a backtrace\n")
    other = threading.Thread(target=read)
    other.start()
    other.join()
    print("said at once", file=sys.stderr)
    os.write(2, b"native\n")
os.write(2, b"thread 'main' panicked at y.rs\n")
"""


def test_a_panic_of_a_reader_does_not_reach_the_terminal_and_all_else_does() -> None:
    done = subprocess.run([sys.executable, "-c", PANICS], capture_output=True, text=True, check=True)
    assert done.stderr == "said at once\nnative\nthread 'main' panicked at y.rs\n"
