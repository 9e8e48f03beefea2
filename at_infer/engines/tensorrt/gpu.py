"""The GPU through cuda-bindings: whether there is one, and the few CUDA calls that running a plan takes."""

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from at_infer.errors import EngineError, MissingExtraError
from at_infer.installed import install_extra


@dataclass(frozen=True, slots=True)
class Gpu:
    """The first GPU that CUDA shows."""

    name: str
    compute_capability: int
    """89 stands for 8.9."""


def find_gpu(source: str = "GPU") -> Gpu:
    """Ask the driver for a GPU, which is safe without one; `source` is for messages.

    To be called before a TensorRT runtime is created: runtimes have been seen to crash where there is no driver.
    """
    rt = _load_runtime(source)
    (error, count), (_, driver), (_, runtime) = (
        rt.cudaGetDeviceCount(),
        rt.cudaDriverGetVersion(),
        rt.cudaRuntimeGetVersion(),
    )
    if error != rt.cudaError_t.cudaSuccess or not count:
        raise EngineError(f"{source}: {explain_absence(error.name, driver, runtime)}")
    properties = _check(rt, rt.cudaGetDeviceProperties(0), "reading the GPU's properties")
    return Gpu(
        name=properties.name.decode(errors="replace").rstrip("\0"),
        compute_capability=10 * properties.major + properties.minor,
    )


def explain_absence(error: str, driver: int, runtime: int) -> str:
    """Why CUDA shows no GPU, from its error and the versions of driver (0: none) and runtime, and what to do."""
    if not driver:
        return (
            "needs an NVIDIA GPU, and this machine has no NVIDIA driver; "
            "install the driver, or use the .onnx file, which runs on CPU"
        )
    if error == "cudaErrorInsufficientDriver":
        return (
            f"the NVIDIA driver supports CUDA {cuda_version(driver)}, cuda-bindings is made for "
            f"{cuda_version(runtime)}; update the driver, or pip install 'cuda-bindings<{runtime // 1000}'"
        )
    if error in ("cudaErrorNoDevice", "cudaSuccess"):
        return "the NVIDIA driver shows no GPU; see nvidia-smi, and whether CUDA_VISIBLE_DEVICES hides it"
    return f"CUDA does not start ({error}); see nvidia-smi"


def cuda_version(number: int) -> str:
    """12080 -> 12.8."""
    return f"{number // 1000}.{number % 1000 // 10}"


class CudaDevice:
    """Memory, streams and graphs of the first GPU; frees all of it on `close`. Implements `lanes.Device`."""

    def __init__(self) -> None:
        self._rt = _load_runtime("GPU")
        self._frees: list[Callable[[], Any]] = []

    def pinned(self, shape: tuple[int, ...], dtype: DTypeLike) -> NDArray[Any]:
        """Host memory that copies to and from the GPU can use in the background."""
        kind = np.dtype(dtype)
        nbytes = kind.itemsize * int(np.prod(shape, dtype=np.int64))
        what = f"pinning {nbytes} bytes of host memory"
        address = self._call(what, self._rt.cudaHostAlloc, nbytes, self._rt.cudaHostAllocDefault)
        self._frees.append(lambda: self._rt.cudaFreeHost(address))
        memory = (ctypes.c_byte * nbytes).from_address(int(address))
        return np.ndarray(shape, kind, buffer=memoryview(memory))

    def allocate(self, nbytes: int) -> int:
        """Address of device memory."""
        address = int(self._call(f"allocating {nbytes} bytes on the GPU", self._rt.cudaMalloc, nbytes))
        self._frees.append(lambda: self._rt.cudaFree(address))
        return address

    def open_stream(self) -> int:
        """A queue of work that runs beside the others."""
        stream = self._call("opening a stream", self._rt.cudaStreamCreateWithFlags, self._rt.cudaStreamNonBlocking)
        self._frees.append(lambda: self._rt.cudaStreamDestroy(stream))
        return int(stream)

    def upload(self, address: int, source: NDArray[Any], stream: int) -> None:
        """Queue a copy from pinned memory to the GPU."""
        kind = self._rt.cudaMemcpyKind.cudaMemcpyHostToDevice
        self._call(
            "copying to the GPU", self._rt.cudaMemcpyAsync, address, source.ctypes.data, source.nbytes, kind, stream
        )

    def download(self, target: NDArray[Any], address: int, stream: int) -> None:
        """Queue a copy from the GPU to pinned memory."""
        kind = self._rt.cudaMemcpyKind.cudaMemcpyDeviceToHost
        self._call(
            "copying from the GPU", self._rt.cudaMemcpyAsync, target.ctypes.data, address, target.nbytes, kind, stream
        )

    def wait(self, stream: int) -> None:
        """Return when everything in the queue is done."""
        self._call("running a batch", self._rt.cudaStreamSynchronize, stream)

    def capture(self, stream: int, enqueue: Callable[[], None]) -> int:
        """Record what `enqueue` queues, without running it, as a graph."""
        rt, what = self._rt, "capturing a CUDA graph"
        # Thread-local: CUDA calls of other threads, such as torch's in the same process, do not spoil the capture.
        self._call(what, rt.cudaStreamBeginCapture, stream, rt.cudaStreamCaptureMode.cudaStreamCaptureModeThreadLocal)
        try:
            enqueue()
        except BaseException:
            rt.cudaStreamEndCapture(stream)  # leaves the stream usable; the first error is the one to tell
            raise
        graph = self._call(what, rt.cudaStreamEndCapture, stream)
        executable = self._call(what, rt.cudaGraphInstantiate, graph, 0)
        rt.cudaGraphDestroy(graph)
        self._frees.append(lambda: rt.cudaGraphExecDestroy(executable))
        return int(executable)

    def launch(self, graph: int, stream: int) -> None:
        """Queue a captured graph."""
        self._call("launching a CUDA graph", self._rt.cudaGraphLaunch, graph, stream)

    def close(self) -> None:
        """Free everything, newest first; errors no longer matter."""
        while self._frees:
            self._frees.pop()()

    def _call(self, what: str, function: Callable[..., Any], *args: Any) -> Any:
        return _check(self._rt, function(*args), what)


def _check(rt: Any, answer: tuple[Any, ...], what: str) -> Any:
    """The value of a CUDA call, or its error in words."""
    error, *values = answer
    if error != rt.cudaError_t.cudaSuccess:
        _, reason = rt.cudaGetErrorString(error)
        raise EngineError(f"GPU: {what} failed: {reason.decode(errors='replace')} ({error.name})")
    return values[0] if values else None


def _load_runtime(source: str) -> Any:
    try:
        from cuda.bindings import runtime
    except ImportError:
        raise MissingExtraError(
            f"{source}: needs the package cuda-bindings, which comes with TensorRT-RTX; {install_extra('rtx')}, or "
            "pip install cuda-bindings beside another TensorRT"
        ) from None
    return runtime
