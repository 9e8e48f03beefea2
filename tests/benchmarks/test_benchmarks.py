"""Benchmarks that nobody runs rot: the small ones run here, and kept results belong to a script."""

import json
import subprocess
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from benchmarks.inference_speed import check_products, floor, product_shapes
from tests.checkpoints import checkpoint

ROOT = Path(__file__).parents[2]
RESULTS = sorted((ROOT / "benchmarks" / "results").glob("*.json"))


def export_matrix(warm: Path, path: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [warm / "python", ROOT / "benchmarks" / "export_matrix.py", "--checkpoint", path, *options]
    return subprocess.run(command, capture_output=True, text=True)


@pytest.mark.slow
def test_the_export_matrix_ends_in_one_json_line(tmp_path: Path, warm: Path) -> None:
    checkpoint().save(tmp_path / "ckpt.pt")
    done = export_matrix(warm, tmp_path / "ckpt.pt", "--precision", "fp32", "--repeats", "1", "--batch", "8")
    assert done.returncode == 0, done.stderr
    *table, last = done.stdout.splitlines()
    assert sum(line.startswith(("score ", "associations ")) for line in table) == 2
    found = json.loads(last)
    assert [row["graph"] for row in found["rows"]] == ["score", "associations"]
    for row in found["rows"]:
        assert row["timed_share_of_tolerance"] < 1
        assert row["times_pytorch"] > 0
        assert row["onnx_bytes"] > 0
        assert row["plan_bytes"] > 0


@pytest.mark.slow
def test_verdicts_are_counted_for_every_row(tmp_path: Path, warm: Path) -> None:
    source = checkpoint()
    source.save(tmp_path / "ckpt.pt")
    noise = np.random.default_rng(0).normal(size=(205, len(source.columns)))
    pl.DataFrame(noise, schema=source.columns).write_parquet(tmp_path / "data.parquet")
    command = ["--checkpoint", tmp_path / "ckpt.pt", "--data", tmp_path / "data.parquet", "--precision", "int8-dynamic"]
    done = subprocess.run([warm / "python", "-m", "benchmarks.verdicts", *command], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["rows"] == 205
    (entry,) = found["precisions"]
    assert entry["precision"] == "int8-dynamic"
    assert 0.9 < entry["unchanged"] <= 1
    assert 0.9 < entry["spearman"] <= 1


@pytest.mark.slow
def test_a_file_that_is_no_checkpoint_is_one_line(tmp_path: Path, warm: Path) -> None:
    (tmp_path / "ckpt.pt").write_text("nothing")
    done = export_matrix(warm, tmp_path / "ckpt.pt")
    assert done.returncode == 1
    assert done.stderr.startswith("error: ")
    assert done.stderr.count("\n") == 1


@pytest.mark.slow
def test_the_floor_has_the_products_of_the_graph(plain_models: Path) -> None:
    network = checkpoint().network()
    check_products(plain_models / "model.onnx", network)
    found = floor(network, batch=2, threads=1)()
    assert [list(product.shape) for product in found] == [
        [2, *left[:-1], right[-1]] for left, right in product_shapes(network)
    ]


@pytest.mark.parametrize("path", RESULTS, ids=lambda path: path.name)
def test_a_kept_result_names_its_script(path: Path) -> None:
    result = json.loads(path.read_text(encoding="utf-8"))
    if "table" in result:
        assert path.stem == f"reproduce_{result['table']}"
        return
    script = ROOT / "benchmarks" / result["benchmark"]
    assert script.with_suffix(".py").is_file() or (script / "__main__.py").is_file()
