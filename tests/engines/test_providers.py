"""Providers of ONNX Runtime: what is loaded and asked for before a session on a GPU is made."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnxruntime
import pytest

from at_infer.engines import open_engine, ort, providers
from at_infer.engines.tensorrt.batching import BatchProfile
from at_infer.errors import AtInferError, EngineError, MissingExtraError
from at_infer.installed import GPU_RUNTIME
from tests.checkpoints import FEATURES, WINDOW, checkpoint, raw_windows


class Options:
    """Session options that remember."""

    def __init__(self) -> None:
        self.entries: dict[str, str] = {}
        self.devices: list[Any] = []

    def add_session_config_entry(self, name: str, value: str) -> None:
        self.entries[name] = value

    def add_provider_for_devices(self, devices: list[Any], settings: dict[str, str]) -> None:
        self.devices, self.settings = devices, settings


class FakeRuntime:
    """onnxruntime-gpu on a machine where all works; sessions are real ones."""

    SessionOptions = onnxruntime.SessionOptions
    GraphOptimizationLevel = onnxruntime.GraphOptimizationLevel
    InferenceSession = onnxruntime.InferenceSession

    def __init__(self) -> None:
        self.preloaded = 0
        self.registered: list[tuple[str, str]] = []

    def preload_dlls(self) -> None:
        self.preloaded += 1
        print("Failed to load libcudnn.so.9")

    def get_available_providers(self) -> list[str]:
        return ["TensorrtExecutionProvider", "CUDAExecutionProvider", "CPUExecutionProvider"]

    def register_execution_provider_library(self, name: str, path: str) -> None:
        self.registered.append((name, path))

    def get_ep_devices(self) -> list[Any]:
        gpu = {"device": SimpleNamespace(device_id=0x2684), "ep_metadata": {"version": "0.5.0"}}
        return [SimpleNamespace(ep_name=name, **gpu) for name, _ in self.registered for _ in range(2)]


@pytest.fixture(autouse=True)
def one_runtime(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(providers, "check_one_runtime", lambda _: None)
    monkeypatch.setattr(providers, "load_flavour", lambda _: None)


def test_cuda_preloads_libraries_without_a_word(models, capsys):
    runtime, options = FakeRuntime(), Options()
    assert providers.prepare(runtime, options, "cuda", models / "model.onnx") == ["CUDAExecutionProvider"]
    assert runtime.preloaded == 1
    assert capsys.readouterr().out == ""
    assert options.entries == {"session.disable_cpu_ep_fallback": "1"}


def test_tensorrt_gets_a_cache_per_model_and_one_profile(models):
    path = models / "model.onnx"
    found = providers.prepare(FakeRuntime(), Options(), "tensorrt", path)
    assert found is not None
    (name, settings), after = found
    assert (name, after) == ("TensorrtExecutionProvider", "CUDAExecutionProvider")
    assert settings["trt_profile_min_shapes"] == f"window:1x{WINDOW}x{FEATURES}"
    assert settings["trt_profile_max_shapes"] == f"window:256x{WINDOW}x{FEATURES}"
    assert settings["trt_engine_cache_enable"] is True
    assert Path(settings["trt_engine_cache_path"]).parent == models
    assert settings["trt_engine_cache_prefix"] == providers.cache_prefix(path)


def test_another_model_of_the_same_name_has_another_cache(tmp_path):
    first, second = tmp_path / "a" / "model.onnx", tmp_path / "b" / "model.onnx"
    for path, content in ((first, b"1"), (second, b"2")):
        path.parent.mkdir()
        path.write_bytes(content)
    assert providers.cache_prefix(first) != providers.cache_prefix(second)
    assert providers.cache_prefix(first).startswith("model-")


def test_a_folder_that_cannot_be_written_gets_no_cache(models, monkeypatch):
    monkeypatch.setattr(providers.os, "access", lambda *_: False)
    settings = providers.tensorrt_options(FakeRuntime(), models / "model.onnx")
    assert set(settings) == {f"trt_profile_{bound}_shapes" for bound in ("min", "opt", "max")}


def test_the_options_are_those_that_onnx_runtime_knows(models):
    """A provider that is not in this build refuses unknown providers, not unknown options: their names are pinned."""
    assert set(providers.tensorrt_options(FakeRuntime(), models / "model.onnx")) == {
        "trt_profile_min_shapes",
        "trt_profile_opt_shapes",
        "trt_profile_max_shapes",
        "trt_engine_cache_enable",
        "trt_engine_cache_path",
        "trt_engine_cache_prefix",
        "trt_timing_cache_enable",
        "trt_timing_cache_path",
    }


def test_a_tensorrt_that_the_provider_does_not_link_is_named(models, monkeypatch):
    monkeypatch.setattr(providers, "load_flavour", lambda _: SimpleNamespace(__version__="11.4.0.106"))
    with pytest.raises(EngineError, match=r"needs TensorRT 10, installed is 11\.4\.0\.106; pip install 'tensorrt<11'"):
        providers.prepare(FakeRuntime(), Options(), "tensorrt", models / "model.onnx")


def test_a_runtime_without_the_provider_says_how_to_replace_it(models, monkeypatch):
    runtime = FakeRuntime()
    monkeypatch.setattr(runtime, "get_available_providers", lambda: ["CPUExecutionProvider"])
    with pytest.raises(EngineError, match="has no cuda provider") as failure:
        providers.prepare(runtime, Options(), "cuda", models / "model.onnx")
    assert str(failure.value).endswith(GPU_RUNTIME)


def test_two_runtimes_are_refused_before_the_gpu_is_asked(models, monkeypatch):
    def refuse(provider: str) -> None:
        raise AtInferError(f"{provider}: onnxruntime and onnxruntime-gpu are both installed")

    monkeypatch.setattr(providers, "check_one_runtime", refuse)
    with pytest.raises(AtInferError, match="both installed"):
        providers.prepare(FakeRuntime(), Options(), "cuda", models / "model.onnx")


@pytest.fixture
def plugin(monkeypatch: pytest.MonkeyPatch) -> str:
    name = "NvTensorRTRTXExecutionProvider"
    module = SimpleNamespace(get_ep_name=lambda: name, get_library_path=lambda: "plugin.so")
    monkeypatch.setitem(providers.importlib.sys.modules, providers.PLUGIN, module)
    return name


def test_the_plugin_is_registered_once_and_gets_the_first_gpu(models, plugin):
    runtime = FakeRuntime()
    for _ in range(2):
        options = Options()
        assert providers.prepare(runtime, options, "rtx", models / "model.onnx") is None
        assert [device.ep_name for device in options.devices] == [plugin]
        assert options.settings["nv_profile_opt_shapes"] == f"window:32x{WINDOW}x{FEATURES}"
    assert runtime.registered == [(plugin, "plugin.so")]
    assert options.settings["nv_runtime_cache_path"] == str(models / "model.onnx.2684.0.5.0.rtx")


def test_a_device_of_onnx_runtime_tells_its_model_and_version():
    """Of this machine's CPU: those of a GPU are not here, but have the same fields."""
    (device,) = onnxruntime.get_ep_devices()
    assert providers.cache_suffix(device) == f"{device.device.device_id:04x}.{onnxruntime.__version__}"


def test_a_plugin_without_a_gpu_is_one_line(models, plugin, monkeypatch):
    runtime = FakeRuntime()
    monkeypatch.setattr(runtime, "get_ep_devices", list)
    with pytest.raises(EngineError, match="finds no GPU"):
        providers.prepare(runtime, Options(), "rtx", models / "model.onnx")


def test_a_plugin_that_does_not_load_is_one_line(models, plugin, monkeypatch):
    def fail(*_: str) -> None:
        raise RuntimeError("Failed to load library plugin.so:\nlibcudart.so.12: cannot open")

    runtime = FakeRuntime()
    monkeypatch.setattr(runtime, "register_execution_provider_library", fail)
    with pytest.raises(EngineError, match=r"does not load \(Failed to load library plugin\.so: libcudart"):
        providers.prepare(runtime, Options(), "rtx", models / "model.onnx")


def test_a_missing_plugin_names_its_extra(models):
    with pytest.raises(MissingExtraError, match=r"needs the plugin onnxruntime_ep_nv_tensorrt_rtx; .*\[rtx-provider\]"):
        open_engine(models / "model.onnx", provider="rtx")


def test_batches_beyond_the_profile_are_split(models, monkeypatch):
    windows = raw_windows(9, checkpoint())
    with open_engine(models / "model.onnx") as engine:
        whole = engine.run(windows)
        monkeypatch.setattr(ort, "DEFAULT_PROFILE", BatchProfile(1, 2, 4))
        engine.provider = "rtx"
        split = engine.run(windows)
        assert {len(values) for values in engine.run(windows[:0]).values()} == {0}
    for name, values in whole.items():
        np.testing.assert_allclose(split[name], values, rtol=1e-4, atol=1e-5)


@pytest.mark.gpu
@pytest.mark.parametrize("provider", ["cuda", "tensorrt", "rtx"])
def test_a_gpu_provider_scores_like_the_cpu(plain_models, provider):
    windows = raw_windows(300, checkpoint())
    with open_engine(plain_models / "model.onnx") as cpu:
        expected = cpu.score(windows)
    try:
        gpu = open_engine(plain_models / "model.onnx", provider=provider)
    except (EngineError, MissingExtraError) as error:
        pytest.skip(str(error))
    with gpu:
        np.testing.assert_allclose(gpu.score(windows), expected, rtol=1e-2, atol=1e-3)
