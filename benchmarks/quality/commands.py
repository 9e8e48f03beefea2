"""The commands of `at-infer`, as a user types them, in this process: PyTorch is imported once."""

import io
import tempfile
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from at_infer.cli import app
from benchmarks.quality.series import Series

Floats = NDArray[np.float32]


def at_infer(*words: object) -> None:
    """`at-infer WORDS`; its output is shown only if it fails."""
    said = io.StringIO()
    with redirect_stdout(said), redirect_stderr(said):
        code = app([str(word) for word in words], standalone_mode=False)
    if code:
        raise RuntimeError(f"at-infer {' '.join(map(str, words))}: exit code {code}\n{said.getvalue()}")


def folder_of(work: Path, series: Series, seed: int) -> Path:
    """Where the model of a series and its figures are kept."""
    return work / f"{series.group.replace(' ', '-')}-{series.name}-{seed}"


def train(series: Series, folder: Path, seed: int) -> Path:
    """The exported model of a series, kept in `folder`: nothing but names of columns is given."""
    model = folder / "model.onnx"
    if not model.with_name("model.associations.onnx").exists():  # the last file that an export writes
        with tempfile.TemporaryDirectory() as name:
            rows, checkpoint = Path(name, "train.parquet"), Path(name, "ckpt.pt")
            series.train.write_parquet(rows)
            seeded = ["--seed", seed] if seed else []
            at_infer("train", rows, "-o", checkpoint, *series.options, *seeded)
            at_infer("export", checkpoint, "-o", folder, "--engine", "none", "--overwrite")
    return model


def score(rows: pl.DataFrame, model: Path, *options: object) -> Floats:
    """One score per row, NaN where there is none."""
    with tempfile.TemporaryDirectory() as name:
        data, scores = Path(name, "test.parquet"), Path(name, "scores.parquet")
        rows.write_parquet(data)
        at_infer("score", data, "--engine", model, "-o", scores, *options)
        return pl.read_parquet(scores)["score"].fill_null(np.nan).to_numpy().astype(np.float32)
