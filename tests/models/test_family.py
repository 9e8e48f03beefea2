"""Which file of a model a machine gets."""

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from at_infer.engines.tensorrt.on_paper import PlanOnPaper
from at_infer.errors import EngineError
from at_infer.models.family import engine_for
from at_infer.models.kinds import file_sha256
from at_infer.models.sidecar import seal, sidecar_path
from at_infer.scoring.scorer import Scorer
from tests.exported import metadata

ONNX = b"the graph"


def write_plan(path: Path, capabilities: list[int], onnx: bytes = ONNX, **changes: Any) -> Path:
    path.write_bytes(f"a plan for {capabilities}".encode())
    facts: dict[str, Any] = {
        "flavour": "tensorrt",
        "version": "10.0",
        "compute_capabilities": capabilities,
        "plan_sha256": file_sha256(path),
        "onnx_sha256": hashlib.sha256(onnx).hexdigest(),
        "inputs": [],
        "outputs": [{"name": "score", "shape": [-1, 8], "dtype": "float"}],
    }
    sealed = seal(metadata(batch=[1, 4, 8], engine=facts | changes))
    sidecar_path(path).write_text(json.dumps(sealed.to_dict()))
    return path


@pytest.fixture
def onnx(tmp_path: Path) -> Path:
    path = tmp_path / "model.onnx"
    path.write_bytes(ONNX)
    return path


def test_each_gpu_gets_the_plan_built_for_it_and_other_machines_the_onnx_file(onnx: Path) -> None:
    ampere = write_plan(onnx.parent / "model.trt", [86, 89])
    blackwell = write_plan(onnx.parent / "model.sm120.trt", [120])
    for given in (onnx, ampere, blackwell):
        assert engine_for(given, 89) == ampere
        assert engine_for(given, 120) == blackwell
        assert engine_for(given, 75) == onnx
        assert engine_for(given, None) == onnx


def test_the_plan_that_was_named_comes_first(onnx: Path) -> None:
    write_plan(onnx.parent / "a.trt", [89])
    named = write_plan(onnx.parent / "b.trt", [89])
    assert engine_for(named, 89) == named


def test_plans_of_another_model_and_damaged_ones_are_passed_over(onnx: Path) -> None:
    write_plan(onnx.parent / "a.trt", [89], onnx=b"another graph")
    write_plan(onnx.parent / "b.trt", [89]).write_bytes(b"swapped")
    (onnx.parent / "c.trt").write_bytes(b"no sidecar")
    assert engine_for(onnx, 89) == onnx


def test_a_machine_that_can_run_none_of_the_files_is_refused(onnx: Path) -> None:
    plan = write_plan(onnx.parent / "model.trt", [89])
    onnx.unlink()
    with pytest.raises(
        EngineError, match=r"model.trt: cannot run here, there is no GPU, and neither a plan for it nor"
    ):
        engine_for(plan, None)
    with pytest.raises(EngineError, match="the GPU has compute capability 75"):
        engine_for(plan, 75)
    with pytest.raises(EngineError, match=r"model.onnx: no such file"):
        engine_for(onnx, 89)


def test_a_plan_can_be_described_where_it_cannot_run(onnx: Path) -> None:
    plan = write_plan(onnx.parent / "model.trt", [89])
    with Scorer(PlanOnPaper(plan)) as scorer:
        assert scorer.threshold == 0.25
        assert scorer.layout.window == 8
        with pytest.raises(EngineError, match=r"model.trt: runs on workers only"):
            scorer.score([[0.0, 0.0, 0.0]] * 8)
    sidecar_path(plan).unlink()
    with pytest.raises(EngineError, match="has no sidecar"):
        PlanOnPaper(plan)
