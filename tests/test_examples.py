"""Every example runs, on small inputs."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from tests.checkpoints import checkpoint
from tests.scored import rows

EXAMPLES = Path(__file__).parent.parent / "examples"
PUBLISHED = Path(__file__).parent / "data" / "published_small_checkpoint.pth"


def run(*words: object) -> str:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    command = [str(word) for word in words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, env=os.environ | {"PATH": path})
    assert done.returncode == 0, f"{done.stdout}{done.stderr}"
    return done.stdout


def test_each_is_tested_here() -> None:
    text = Path(__file__).read_text(encoding="utf-8")
    assert all(f'"{path.name}"' in text for path in EXAMPLES.iterdir() if path.is_file())


def test_walk_through(tmp_path: Path) -> None:
    script = EXAMPLES / "walk_through.py"
    said = run(sys.executable, script, tmp_path / "w", "--rows", 600, 300, 600, "--epochs", 1)
    assert "the jolt scores" in said
    assert (tmp_path / "w" / "report.html").is_file()


def test_published_checkpoint(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    for name, count in (("train", 500), ("test", 300)):
        columns = {f"f{j}": rng.normal(size=count) for j in range(5)}
        pl.DataFrame({"timestamp": np.arange(count), **columns}).write_parquet(tmp_path / f"{name}.parquet")
    files = [tmp_path / "train.parquet", tmp_path / "test.parquet"]
    run("bash", EXAMPLES / "migrate_published.sh", PUBLISHED, *files, tmp_path / "out", 50)
    assert pl.read_parquet(tmp_path / "out" / "scores.parquet").height == 300
    assert (tmp_path / "out" / "report.html").is_file()


def test_triton(tmp_path: Path) -> None:
    checkpoint().save(tmp_path / "ckpt.pt")
    said = run("bash", EXAMPLES / "triton.sh", tmp_path / "ckpt.pt", tmp_path / "out")
    assert list((tmp_path / "out" / "repository").glob("*/config.pbtxt"))
    assert "tritonserver --model-repository" in said


def test_ray_job(tmp_path: Path, models: Path) -> None:
    pytest.importorskip("ray")
    (tmp_path / "data").mkdir()
    for k in range(2):
        rows(60, seed=k).write_parquet(tmp_path / "data" / f"{k}.parquet")
    run("bash", EXAMPLES / "ray_job.sh", tmp_path / "data", models / "model.onnx", tmp_path / "scores")
    assert (tmp_path / "scores.html").is_file()
