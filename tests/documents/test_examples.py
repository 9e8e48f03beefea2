"""Every example runs, on small inputs."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from at_infer import score_file
from tests.checkpoints import checkpoint
from tests.scored import rows

EXAMPLES = Path(__file__).parents[2] / "examples"
PUBLISHED = Path(__file__).parents[1] / "data" / "published_small_checkpoint.pth"


def run_example(*words: object, programs: Path | None = None, **variables: str) -> str:
    """With `at-infer` and `python` of that folder, or else of this Python."""
    path = f"{programs or Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    command = [str(word) for word in words]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=1200, env=os.environ | {"PATH": path} | variables
    )
    assert done.returncode == 0, f"{done.stdout}{done.stderr}"
    return done.stdout


def walk_through(script: Path, folder: Path, models: Path, warm: Path) -> None:
    python = warm / "python"
    words = ["--rows", 600, 300, 600, "--max-steps", 20]
    said = run_example(python, script, folder / "w", *words, WARM_PYTHON=str(python))
    assert "the jolt scores" in said
    assert (folder / "w" / "report.html").is_file()


def migrate_published(script: Path, folder: Path, models: Path, warm: Path) -> None:
    rng = np.random.default_rng(0)
    for name, count in (("train", 500), ("test", 300)):
        columns = {f"f{j}": rng.normal(size=count) for j in range(5)}
        pl.DataFrame({"timestamp": np.arange(count), **columns}).write_parquet(folder / f"{name}.parquet")
    files = [folder / "train.parquet", folder / "test.parquet", folder / "out"]
    run_example("bash", script, PUBLISHED, *files, 50, programs=warm)
    assert pl.read_parquet(folder / "out" / "scores.parquet").height == 300
    assert (folder / "out" / "report.html").is_file()


def triton(script: Path, folder: Path, models: Path, warm: Path) -> None:
    """From a default checkpoint, whose own score no server could compute."""
    checkpoint().save(folder / "ckpt.pt")
    said = run_example("bash", script, folder / "ckpt.pt", folder / "out", programs=warm)
    (config,) = (folder / "out" / "repository").glob("*/config.pbtxt")
    assert 'name: "score"' in config.read_text()
    assert "tritonserver --model-repository" in said


def triton_client(script: Path, folder: Path, models: Path, warm: Path) -> None:
    """Against a stub that speaks Triton's protocol: rows that it flags are those of `at-infer score`."""
    checkpoint().save(folder / "ckpt.pt")
    run_example("bash", EXAMPLES / "triton.sh", folder / "ckpt.pt", folder / "out", programs=warm)
    data = (
        rows(205).with_row_index("k").with_columns(pl.when(pl.col("k") == 77).then(99.0).otherwise("f01").alias("f01"))
    )
    data.write_parquet(folder / "data.parquet")
    stub = [sys.executable, str(Path(__file__).parents[1] / "triton_stub.py"), str(folder / "out" / "repository")]
    with subprocess.Popen(stub, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            url = f"127.0.0.1:{int(server.stdout.readline())}"
            said = run_example(sys.executable, script, folder / "data.parquet", "--url", url)
        finally:
            server.terminate()
    flagged = {answer["row"]: answer["score"] for answer in map(json.loads, said.splitlines())}
    score_file(folder / "data.parquet", folder / "out" / "model.onnx", folder / "scores.parquet")
    expected = pl.read_parquet(folder / "scores.parquet").filter("is_anomaly")
    assert 77 in flagged
    assert list(flagged) == expected["row"].to_list()
    np.testing.assert_allclose(list(flagged.values()), expected["score"], rtol=1e-4)


def ray_job(script: Path, folder: Path, models: Path, warm: Path) -> None:
    (folder / "data").mkdir()
    for k in range(2):
        rows(60, seed=k).write_parquet(folder / "data" / f"{k}.parquet")
    run_example("bash", script, folder / "data", models / "model.onnx", folder / "scores", programs=warm)
    assert (folder / "scores.html").is_file()


def tsb_ad(script: Path, folder: Path, models: Path, warm: Path) -> None:
    assert "highest score in row" in run_example(warm / "python", script, "--max-steps", 5)


RUNS: dict[str, Callable[[Path, Path, Path, Path], None]] = {
    "walk_through.py": walk_through,
    "tsb_ad.py": tsb_ad,
    "migrate_published.sh": migrate_published,
    "triton.sh": triton,
    "triton_client.py": triton_client,
    "ray_job.sh": ray_job,
}
MARKS = {"ray_job.sh": pytest.mark.ray}


CHECK = """
import json, sys
sys.path.insert(0, sys.argv[1])
from triton_client import check
check(json.loads(sys.argv[2]), "m")
"""


@pytest.mark.documents
@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({}, None),
        ({"score": {"mode": "fusion", "smooth": 1}}, "returns no score; export with --score-mode reconstruction"),
        ({"score": {"mode": "reconstruction", "smooth": 5}}, "has a smooth, which this example leaves out"),
        ({"season": {"period_s": 86400}}, "has a season, which this example leaves out"),
    ],
    ids=["plain", "fusion", "smoothed", "season"],
)
def test_the_triton_client_refuses_models_whose_scores_it_would_get_wrong(changed, reason) -> None:
    known = {"score": {"mode": "reconstruction", "smooth": 1}, "season": None, "grid": None} | changed
    words = [sys.executable, "-c", CHECK, str(EXAMPLES), json.dumps(known)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "") if reason is None else reason in done.stderr
    assert done.stderr.count("\n") == (reason is not None)


@pytest.mark.documents
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(path.name, marks=MARKS.get(path.name, ()))
        for path in sorted(EXAMPLES.iterdir())
        if path.is_file() and path.suffix != ".ipynb"
    ],
)
def test_an_example_runs(name: str, tmp_path: Path, models: Path, warm: Path) -> None:
    assert name in RUNS, f"examples/{name}: say in RUNS how it runs"
    RUNS[name](EXAMPLES / name, tmp_path, models, warm)
