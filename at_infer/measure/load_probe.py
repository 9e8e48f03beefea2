"""Load one runtime and print what came of it as JSON. Run as a process of its own: what it loads may crash or be noisy.

It is started by its path, so it imports nothing of at_infer.
"""

import ctypes
import importlib
import json
import sys
from typing import Any

RELU = bytes.fromhex(
    "08083a330a0c0a0178120179220452656c751201675a0f0a0178120a0a08080112040a020801620f0a0179120a0a08080112040a020801"
    "42040a00100d"
)
"""The smallest ONNX model that every execution provider can run: y = Relu(x), one float32."""

COMPUTE_CAPABILITY_MAJOR, COMPUTE_CAPABILITY_MINOR = 75, 76  # CUdevice_attribute


def load_module(name: str) -> dict[str, Any]:
    """Import a module."""
    return {"version": getattr(importlib.import_module(name), "__version__", None)}


def list_providers() -> dict[str, Any]:
    """Execution providers that this build of ONNX Runtime could load if their libraries are there."""
    import onnxruntime

    return {"version": onnxruntime.__version__, "providers": onnxruntime.get_available_providers()}


def run_provider(name: str) -> dict[str, Any]:
    """Run the small model on one execution provider and on no other."""
    import numpy as np
    import onnxruntime

    options = onnxruntime.SessionOptions()
    if name != "CPUExecutionProvider":
        options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
    session = onnxruntime.InferenceSession(RELU, options, providers=[name], enable_fallback=False)
    used = session.get_providers()[0]
    if used != name:
        raise RuntimeError(f"ONNX Runtime fell back to {used}")
    (y,) = session.run(None, {"x": np.array([-1.0], np.float32)})
    if y[0] != 0:
        raise RuntimeError(f"computed {y[0]} for Relu(-1)")
    return {}


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
    else:
        answer = list_gpus(open_driver())
    print(json.dumps(answer))


if __name__ == "__main__":
    main(*sys.argv[1:])
