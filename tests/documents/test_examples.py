"""Every example runs, on small inputs."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import polars as pl

from tests.checkpoints import checkpoint

EXAMPLES = Path(__file__).parents[2] / "examples"
PUBLISHED = Path(__file__).parents[1] / "data" / "published_small_checkpoint.pth"


def run_example(*words: object) -> str:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    command = [str(word) for word in words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, env=os.environ | {"PATH": path})
    assert done.returncode == 0, f"{done.stdout}{done.stderr}"
    return done.stdout


def test_each_is_tested_here_or_with_ray() -> None:
    here = Path(__file__)
    text = "".join(path.read_text(encoding="utf-8") for path in (here, here.with_name("test_ray.py")))
    assert all(f'"{path.name}"' in text for path in EXAMPLES.iterdir() if path.is_file())


def test_walk_through(tmp_path: Path) -> None:
    script = EXAMPLES / "walk_through.py"
    said = run_example(sys.executable, script, tmp_path / "w", "--rows", 600, 300, 600, "--max-steps", 20)
    assert "the jolt scores" in said
    assert (tmp_path / "w" / "report.html").is_file()


def test_published_checkpoint(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    for name, count in (("train", 500), ("test", 300)):
        columns = {f"f{j}": rng.normal(size=count) for j in range(5)}
        pl.DataFrame({"timestamp": np.arange(count), **columns}).write_parquet(tmp_path / f"{name}.parquet")
    files = [tmp_path / "train.parquet", tmp_path / "test.parquet"]
    run_example("bash", EXAMPLES / "migrate_published.sh", PUBLISHED, *files, tmp_path / "out", 50)
    assert pl.read_parquet(tmp_path / "out" / "scores.parquet").height == 300
    assert (tmp_path / "out" / "report.html").is_file()


def test_triton(tmp_path: Path) -> None:
    checkpoint().save(tmp_path / "ckpt.pt")
    said = run_example("bash", EXAMPLES / "triton.sh", tmp_path / "ckpt.pt", tmp_path / "out")
    assert list((tmp_path / "out" / "repository").glob("*/config.pbtxt"))
    assert "tritonserver --model-repository" in said
