"""Load one runtime and print what came of it as JSON. Run as a process of its own: what it loads may crash or be noisy.

It is started by its path, so it imports nothing of at_infer.
"""

import ctypes
import importlib
import importlib.util
import json
import sys
from typing import Any

MODEL = bytes.fromhex(
    "080812003ab4010a110a01780a017712016822064d61744d756c0a250a01681201792207536f66746d61782a140a046178697318ffffffff"
    "ffffffffff01a001021201672a4b0804080410014201774a40000000bf000080be000000000000803e0000003f000000bf000080be000000"
    "000000803e0000003f000000bf000080be000000000000803e0000003f000000bf5a130a0178120e0a0c080112080a0208020a0208046213"
    "0a0179120e0a0c080112080a0208020a02080442040a00100d"
)
"""A small ONNX model that every runtime can run: y = Softmax(x w), float32 (2,4). It needs kernels of a GPU."""
SHAPE = (2, 4)
TOLERANCE = 2e-3
"""Between a GPU, which may round products to ten bits, and the CPU."""

CPU = "CPUExecutionProvider"
RTX_PLUGIN = "NvTensorRTRTXExecutionProvider"
COMPUTE_CAPABILITY_MAJOR, COMPUTE_CAPABILITY_MINOR = 75, 76  # CUdevice_attribute


def load_module(name: str) -> dict[str, Any]:
    """Import a module."""
    return {"version": getattr(importlib.import_module(name), "__version__", None)}


def list_providers() -> dict[str, Any]:
    """Execution providers that this build of ONNX Runtime could load if their libraries are there."""
    import onnxruntime

    plugin = [RTX_PLUGIN] if importlib.util.find_spec("onnxruntime_ep_nv_tensorrt_rtx") else []
    found = [*onnxruntime.get_available_providers(), *plugin]
    return {"version": onnxruntime.__version__, "providers": list(dict.fromkeys(found))}


def run_provider(name: str) -> dict[str, Any]:
    """Run the small model on one execution provider and on no other; how far its answer is from the CPU's."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    if name != CPU:
        preload(onnxruntime, name)
        options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
    if name == RTX_PLUGIN:
        session = onnxruntime.InferenceSession(MODEL, add_plugin(onnxruntime, options))
    else:
        session = onnxruntime.InferenceSession(MODEL, options, providers=[name], enable_fallback=False)
    used = session.get_providers()[0]
    if used != name:
        raise RuntimeError(f"ONNX Runtime fell back to {used}")
    return compare(session.run(None, {"x": question()})[0])


def preload(onnxruntime: Any, name: str) -> None:
    """Load libraries installed as pip packages; a missing one shows when the session is created."""
    if hasattr(onnxruntime, "preload_dlls"):
        onnxruntime.preload_dlls()
    if name == "TensorrtExecutionProvider" and importlib.util.find_spec("tensorrt"):
        importlib.import_module("tensorrt")


def add_plugin(onnxruntime: Any, options: Any) -> Any:
    """TensorRT-RTX's execution provider, a package of its own."""
    open_driver()  # without one, the plugin complains about another library
    plugin = importlib.import_module("onnxruntime_ep_nv_tensorrt_rtx")
    onnxruntime.register_execution_provider_library(plugin.get_ep_name(), plugin.get_library_path())
    devices = [device for device in onnxruntime.get_ep_devices() if device.ep_name == plugin.get_ep_name()]
    if not devices:
        raise RuntimeError("its plugin finds no GPU")
    options.add_provider_for_devices(devices[:1], {})
    return options


def question() -> Any:
    """Input of the small model."""
    import numpy as np

    return np.linspace(-3, 3, 8, dtype=np.float32).reshape(SHAPE)


def compare(found: Any) -> dict[str, Any]:
    """The largest difference from what the CPU says; too large a one is an error."""
    import numpy as np
    import onnxruntime

    (expected,) = onnxruntime.InferenceSession(MODEL, providers=[CPU]).run(None, {"x": question()})
    difference = float(np.abs(np.asarray(found) - expected).max())
    if not difference <= TOLERANCE:
        raise RuntimeError(f"computes something else than the CPU: differs by {difference:g}")
    return {"difference": difference}


def run_plan(module: str) -> dict[str, Any]:
    """Build a plan of the small model and, where there is a GPU, run it."""
    trt = importlib.import_module(module)
    logger = trt.Logger(trt.Logger.ERROR)
    try:
        has_gpu = bool(list_gpus(open_driver())["devices"])
    except (OSError, RuntimeError):
        has_gpu = False
    plan = build_plan(trt, logger, has_gpu)
    return {"built": True, "ran": has_gpu} | (compare(execute(trt, logger, plan)) if has_gpu else {})


def build_plan(trt: Any, logger: Any, has_gpu: bool) -> bytes:
    """The plan; TensorRT-RTX can build for a GPU that is not here."""
    builder = trt.Builder(logger)
    flags = trt.NetworkDefinitionCreationFlag
    network = builder.create_network(1 << int(flags.STRONGLY_TYPED) if hasattr(flags, "STRONGLY_TYPED") else 0)
    parser = trt.OnnxParser(network, logger)
    if not parser.parse(MODEL):
        raise RuntimeError(f"cannot parse ONNX: {parser.get_error(0).desc()}")
    config = builder.create_builder_config()
    if hasattr(trt, "ComputeCapability") and not has_gpu:
        config.num_compute_capabilities = 1
        config.set_compute_capability(trt.ComputeCapability.SM86, 0)
    plan = builder.build_serialized_network(network, config)
    if plan is None:
        raise RuntimeError("builds no plan of a small model")
    return bytes(plan)


def execute(trt: Any, logger: Any, plan: bytes) -> Any:
    """The plan's answer, from the first GPU."""
    import numpy as np

    runtime: Any = importlib.import_module("cuda.bindings.runtime")

    def call(function: Any, *arguments: Any) -> Any:
        error, *values = function(*arguments)
        if error != runtime.cudaError_t.cudaSuccess:
            raise RuntimeError(f"{function.__name__}: {error.name}")
        return values[0] if values else None

    engine = trt.Runtime(logger).deserialize_cuda_engine(plan)
    if engine is None:
        raise RuntimeError("does not load the plan that it has built")
    context = engine.create_execution_context()
    asked, answer = question(), np.zeros(SHAPE, np.float32)
    addresses = {name: call(runtime.cudaMalloc, asked.nbytes) for name in ("x", "y")}
    to_gpu, to_host = (getattr(runtime.cudaMemcpyKind, f"cudaMemcpy{way}") for way in ("HostToDevice", "DeviceToHost"))
    call(runtime.cudaMemcpy, addresses["x"], asked.ctypes.data, asked.nbytes, to_gpu)
    for name, address in addresses.items():
        context.set_tensor_address(name, address)
    stream = call(runtime.cudaStreamCreate)
    if not context.execute_async_v3(int(stream)):
        raise RuntimeError("does not run the plan that it has built")
    call(runtime.cudaStreamSynchronize, stream)
    call(runtime.cudaMemcpy, answer.ctypes.data, addresses["y"], answer.nbytes, to_host)
    return answer


def open_driver() -> Any:
    """The CUDA driver's own library; it comes with the driver, not with any package."""
    return ctypes.CDLL("nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1")


def list_gpus(driver: Any) -> dict[str, Any]:
    """Name, memory and compute capability of each GPU, as the driver tells them."""

    def call(function: str, *arguments: Any) -> None:
        if code := getattr(driver, function)(*arguments):
            raise RuntimeError(f"CUDA error {code} in {function}")

    call("cuInit", 0)
    count = ctypes.c_int()
    call("cuDeviceGetCount", ctypes.byref(count))
    gpus = []
    for device in range(count.value):
        name = ctypes.create_string_buffer(256)
        memory, major, minor = ctypes.c_size_t(), ctypes.c_int(), ctypes.c_int()
        call("cuDeviceGetName", name, len(name), device)
        call("cuDeviceTotalMem_v2", ctypes.byref(memory), device)
        call("cuDeviceGetAttribute", ctypes.byref(major), COMPUTE_CAPABILITY_MAJOR, device)
        call("cuDeviceGetAttribute", ctypes.byref(minor), COMPUTE_CAPABILITY_MINOR, device)
        gpus.append(
            {
                "name": name.value.decode(errors="replace"),
                "memory_gb": round(memory.value / 2**30, 1),
                "compute_capability": f"{major.value}.{minor.value}",
            }
        )
    return {"devices": gpus}


def main(what: str, *names: str) -> None:
    """Do one of the above and print its answer."""
    if what == "module":
        answer = load_module(*names)
    elif what == "providers":
        answer = list_providers()
    elif what == "provider":
        answer = run_provider(*names)
    elif what == "plan":
        answer = run_plan(*names)
    else:
        answer = list_gpus(open_driver())
    print(json.dumps(answer))


if __name__ == "__main__":
    main(*sys.argv[1:])
