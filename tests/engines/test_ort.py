"""ONNX Runtime as an engine: what it opens, what it refuses."""

import subprocess
import sys

import numpy as np
import onnx
import pytest
import torch

from at_infer.engines import open_engine
from at_infer.errors import EngineError
from tests.checkpoints import PLAIN, checkpoint, raw_windows
from tests.export.test_parity import graph


def test_scores_are_those_of_pytorch(plain_models):
    source = checkpoint(score=PLAIN)
    windows = raw_windows(9, source)
    with open_engine(plain_models / "model.onnx") as engine:
        assert engine.metadata is not None
        assert engine.metadata.columns == ["f00", "f01", "f02"]
        found = engine.score(windows)
    expected = graph(source)(torch.from_numpy(windows))[0].detach()
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-6)


def test_the_associations_graph_scores_like_the_fused_one(models):
    windows = raw_windows(9, checkpoint())
    with open_engine(models / "model.onnx") as fused, open_engine(models / "model.associations.onnx") as raw:
        np.testing.assert_allclose(raw.score(windows), fused.score(windows), rtol=1e-5, atol=1e-5)


def test_threads_do_not_change_a_score(models):
    windows = raw_windows(33, checkpoint())
    with open_engine(models / "model.onnx", threads=1) as one, open_engine(models / "model.onnx", threads=2) as two:
        np.testing.assert_allclose(one.score(windows), two.score(windows), atol=1e-6)


def test_denormal_numbers_of_the_caller_are_left_alone(models):
    program = (
        "import sys, numpy as np; from pathlib import Path; from at_infer.engines.ort import open_session; "
        "open_session(Path(sys.argv[1])); sys.exit(int(np.nextafter(0, 1) * 1.0 == 0))"
    )
    subprocess.run([sys.executable, "-c", program, str(models / "model.onnx")], check=True)


def test_windows_of_another_shape_are_refused(models):
    with open_engine(models / "model.onnx") as engine, pytest.raises(EngineError, match="takes windows of shape"):
        engine.run(np.zeros((2, 20, 4), np.float32))


@pytest.mark.slow
def test_an_onnx_file_of_someone_else_opens_and_says_what_it_lacks(trace, tmp_path):
    onnx.save(
        trace(graph(checkpoint(score=PLAIN)), ["score", "error", "discrepancy", "reconstruction"]),
        tmp_path / "bare.onnx",
    )
    with open_engine(tmp_path / "bare.onnx") as engine:
        assert engine.metadata is None
        assert engine.run(raw_windows(2, checkpoint(score=PLAIN)))["score"].shape == (2, 20)
        with pytest.raises(EngineError, match="lacks metadata"):
            engine.score(raw_windows(2, checkpoint(score=PLAIN)))


def test_a_text_file_named_onnx_is_refused(tmp_path):
    (tmp_path / "text.onnx").write_text("hello")
    with pytest.raises(EngineError, match="not an ONNX model"):
        open_engine(tmp_path / "text.onnx")


@pytest.mark.parametrize("name", ["model.bin", "model"])
def test_an_unknown_suffix_is_refused(tmp_path, name):
    (tmp_path / name).write_text("hello")
    with pytest.raises(EngineError, match="is not that of an engine"):
        open_engine(tmp_path / name)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(EngineError, match=r"absent\.onnx: no such file"):
        open_engine(tmp_path / "absent.onnx")


@pytest.mark.parametrize("provider", ["cuda", "tensorrt"])
def test_a_provider_that_does_not_work_is_an_error_not_a_fall_back(models, provider):
    if torch.cuda.is_available():
        with open_engine(models / "model.onnx", provider=provider) as engine:
            assert provider in engine.describe()
    else:
        with pytest.raises(EngineError, match="provider"):
            open_engine(models / "model.onnx", provider=provider)


@pytest.mark.gpu
def test_cuda_scores_like_the_cpu(models):
    windows = raw_windows(9, checkpoint())
    with open_engine(models / "model.onnx") as cpu, open_engine(models / "model.onnx", provider="cuda") as gpu:
        np.testing.assert_allclose(gpu.score(windows), cpu.score(windows), rtol=1e-3, atol=1e-5)
