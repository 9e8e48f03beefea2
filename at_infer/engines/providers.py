"""ONNX Runtime's execution providers: libraries loaded beforehand, options, and the plugin. Never run on a GPU yet."""

import importlib
import io
import os
from collections.abc import Sequence
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

from at_infer.config import Provider
from at_infer.engines.tensorrt.batching import DEFAULT_PROFILE
from at_infer.engines.tensorrt.modules import load_flavour
from at_infer.errors import EngineError, MissingExtraError
from at_infer.installed import GPU_RUNTIME, check_one_runtime, install_extra
from at_infer.models.kinds import file_sha256

PLUGIN = "onnxruntime_ep_nv_tensorrt_rtx"
PROVIDERS: dict[Provider, list[str]] = {
    "cpu": ["CPUExecutionProvider"],
    "cuda": ["CUDAExecutionProvider"],
    "tensorrt": ["TensorrtExecutionProvider", "CUDAExecutionProvider"],
    "rtx": ["NvTensorRTRTXExecutionProvider"],
}
LINKED_TENSORRT = "10"
"""Major version that the TensorRT provider of onnxruntime-gpu links."""


def prepare(ort: Any, options: Any, provider: Provider, model: Path | bytes) -> list[Any] | None:
    """Set up a GPU's provider: what `InferenceSession` takes as `providers`; None for the plugin, `options` have it."""
    name = model if isinstance(model, Path) else "model"
    options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
    if provider == "rtx":
        _add_plugin(ort, options, model)
        return None
    check_one_runtime(provider)
    if PROVIDERS[provider][0] not in ort.get_available_providers():
        raise EngineError(f"{name}: this ONNX Runtime has no {provider} provider; {GPU_RUNTIME}")
    # Libraries of pip packages are on no search path; what is missing after that shows when the session is made.
    if hasattr(ort, "preload_dlls"):
        with redirect_stdout(io.StringIO()):  # it prints what it does not find
            ort.preload_dlls()
    if provider == "cuda":
        return list(PROVIDERS["cuda"])
    _check_tensorrt(name)
    return [("TensorrtExecutionProvider", tensorrt_options(ort, model)), "CUDAExecutionProvider"]


def tensorrt_options(ort: Any, model: Path | bytes) -> dict[str, Any]:
    """One engine for all batch sizes, kept beside the model: without a cache every process builds it again."""
    options: dict[str, Any] = {
        f"trt_profile_{bound}_shapes": shape for bound, shape in profile_shapes(input_shape(ort, model)).items()
    }
    if isinstance(model, Path) and os.access(model.parent, os.W_OK):
        options |= {
            "trt_engine_cache_enable": True,
            "trt_engine_cache_path": str(model.parent / f"{model.name}.tensorrt"),
            "trt_engine_cache_prefix": cache_prefix(model),
            "trt_timing_cache_enable": True,
            "trt_timing_cache_path": str(model.parent / f"{model.name}.tensorrt"),
        }
    return options


def cache_prefix(model: Path) -> str:
    """Of an engine's file: an engine belongs to the bytes of its model, not to its name."""
    return f"{model.stem}-{file_sha256(model)[:12]}"


def cache_suffix(device: Any) -> str:
    """Model of the GPU, as PCI numbers it, and version of the plugin: compiled kernels are for no other."""
    return f"{device.device.device_id:04x}.{device.ep_metadata.get('version', 'unknown')}"


def input_shape(ort: Any, model: Path | bytes) -> tuple[str, list[int]]:
    """Name and steps, features of the input, without optimising the graph."""
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    source = str(model) if isinstance(model, Path) else model
    (window,) = ort.InferenceSession(source, options, providers=PROVIDERS["cpu"]).get_inputs()
    return window.name, [int(size) for size in window.shape[1:]]


def profile_shapes(window: tuple[str, Sequence[int]]) -> dict[str, str]:
    """`window:32x100x25` for the smallest, usual and largest batch."""
    name, shape = window
    return {
        bound: f"{name}:{'x'.join(map(str, (size, *shape)))}"
        for bound, size in zip(("min", "opt", "max"), DEFAULT_PROFILE.as_list(), strict=True)
    }


def _check_tensorrt(name: object) -> None:
    """Load TensorRT's libraries, if they came as a package, before the provider looks for them."""
    trt = load_flavour("tensorrt")
    if trt is not None and trt.__version__.split(".")[0] != LINKED_TENSORRT:
        raise EngineError(
            f"{name}: ONNX Runtime's tensorrt provider needs TensorRT {LINKED_TENSORRT}, installed is "
            f"{trt.__version__}; pip install 'tensorrt<11', or export a plan and score with that"
        )


def _add_plugin(ort: Any, options: Any, model: Path | bytes) -> None:
    """TensorRT-RTX's provider, which is a package of its own beside plain onnxruntime."""
    name = model if isinstance(model, Path) else "model"
    try:
        plugin = importlib.import_module(PLUGIN)
    except ImportError:
        raise MissingExtraError(
            f"{name}: provider rtx needs the plugin {PLUGIN}; {install_extra('rtx-provider')}"
        ) from None
    if not hasattr(ort, "get_ep_devices"):
        raise EngineError(f"{name}: provider rtx needs onnxruntime 1.24 or later; pip install -U onnxruntime")
    ep = plugin.get_ep_name()
    if all(device.ep_name != ep for device in ort.get_ep_devices()):  # a library is registered once per process
        try:
            ort.register_execution_provider_library(ep, plugin.get_library_path())
        except Exception as error:  # its exception types are not public
            reason = " ".join(str(error).split())[:300]
            raise EngineError(
                f"{name}: ONNX Runtime's rtx provider does not load ({reason}); run at-infer doctor, or pass "
                "provider='cpu'"
            ) from None
    devices = [device for device in ort.get_ep_devices() if device.ep_name == ep]
    if not devices:
        raise EngineError(
            f"{name}: ONNX Runtime's rtx provider finds no GPU (Ampere or later); run at-infer doctor, or pass "
            "provider='cpu'"
        )
    shapes = profile_shapes(input_shape(ort, model))
    settings = {f"nv_profile_{bound}_shapes": shape for bound, shape in shapes.items()}
    if isinstance(model, Path) and os.access(model.parent, os.W_OK):
        settings["nv_runtime_cache_path"] = str(model.parent / f"{model.name}.{cache_suffix(devices[0])}.rtx")
    options.add_provider_for_devices(devices[:1], settings)
