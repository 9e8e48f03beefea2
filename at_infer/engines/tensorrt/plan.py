"""Runs a plan with TensorRT 10, TensorRT 11 or TensorRT-RTX: the only file that imports them for scoring."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple

import numpy as np

from at_infer.engines import Floats, Scoring
from at_infer.engines.tensorrt.batching import BatchProfile
from at_infer.engines.tensorrt.gpu import CudaDevice, find_gpu
from at_infer.engines.tensorrt.lanes import Context, Device, Lane, Slot, Tensor, compute_lanes, run_lanes
from at_infer.engines.tensorrt.modules import (
    complaints,
    install_hint,
    load_flavour,
    recorded,
    shared_logger,
)
from at_infer.errors import EngineError, MissingExtraError, OutputError
from at_infer.models.kinds import PLAN_TAGS, TITLES, Flavour
from at_infer.models.sidecar import (
    check_compute_capability,
    check_version,
    load_sidecar,
    runtime_cache_path,
    sidecar_path,
)
from at_infer.output import atomic_path

LANES = 2  # one batch is computed while another is copied; a third would only wait


class PlanEngine(Scoring):
    """A TensorRT plan on the first GPU.

    Loading a plan executes native code, so its sidecar has to vouch for its bytes. A plan without one (not an export
    of at-infer) opens only with `trust=True`; it runs, but cannot score.

    With `cuda_graph` (the default) every batch size is captured as a CUDA graph after its first run. A capture that
    fails is an error, not a quiet change of method: pass `cuda_graph=False` to run without.

    One thread at a time: `run` takes a lock.
    """

    def __init__(self, path: Path, *, trust: bool = False, cuda_graph: bool = True) -> None:
        self.path = path
        self._lock = Lock()
        self._device: Device | None = None
        self._warm = False
        self._cache_refused = False
        plan = _read(path)
        self.metadata = load_sidecar(path, plan)
        self.missing = [] if self.metadata else ["metadata (columns, scaler, window, threshold)"]
        if self.metadata is None and not trust:
            raise EngineError(
                f"{path}: has no sidecar {sidecar_path(path).name}, and loading an unknown plan runs whatever code is "
                "in it; copy the sidecar too, export the model again, or open it with open_engine(path, trust=True)"
            )
        self.flavour = _flavour(plan, path)
        self.gpu = find_gpu(str(path))  # before any TensorRT runtime exists
        self._trt = self._load_module()
        self._engine = self._deserialise(plan)
        try:
            self._prepare(cuda_graph)
        except BaseException:
            self._free()
            raise

    def _load_module(self) -> Any:
        """The TensorRT that made the plan, in the very version that made it."""
        trt = load_flavour(self.flavour)
        if trt is None:
            raise MissingExtraError(f"{self.path}: needs {TITLES[self.flavour]}; {install_hint(self.flavour)}")
        if self.metadata is not None:
            check_version(self.metadata, trt.__version__, self.path)
            check_compute_capability(self.metadata, self.gpu.compute_capability, self.path)
        return trt

    def _deserialise(self, plan: bytes) -> Any:
        with recorded(self._trt) as messages:
            self._runtime = self._trt.Runtime(shared_logger(self._trt))
            self._check_validity(plan)
            if self._is_portable:
                self._runtime.engine_host_code_allowed = True  # such a plan brings its runtime with it
            engine = self._runtime.deserialize_cuda_engine(plan)
        if engine is None:
            reason = complaints(messages) or "no reason given"
            raise EngineError(f"{self.path}: {self._title} cannot load it ({reason}); export the model again")
        return engine

    def _check_validity(self, plan: bytes) -> None:
        """TensorRT-RTX can say of a plan that it will not load, and why, before it is loaded."""
        if not hasattr(self._runtime, "get_engine_validity"):
            return
        validity, diagnostics = self._runtime.get_engine_validity(plan)
        if validity == self._trt.EngineValidity.INVALID:
            raise EngineError(
                f"{self.path}: {self._title} refuses to load it on {self.gpu.name} (diagnostics {diagnostics}); export "
                "the model again"
            )

    @property
    def _is_portable(self) -> bool:
        return bool(((self.metadata.engine if self.metadata else None) or {}).get("portable"))

    @property
    def _cache_path(self) -> Path:
        return runtime_cache_path(self.path, self.gpu.name, self._trt.__version__)

    @property
    def _title(self) -> str:
        return f"{TITLES[self.flavour]} {self._trt.__version__}"

    def _prepare(self, cuda_graph: bool) -> None:
        """Contexts, streams and buffers; slots follow when a batch of their size first comes along."""
        layout = read_layout(self._trt, self._engine, self.path)
        self.profile, self.window, self._outputs = layout
        self.outputs = tuple(tensor.name for tensor in self._outputs)
        self._config, self._cache = self._runtime_config(cuda_graph)
        # TensorRT-RTX captures graphs itself, once its kernels for the shape are compiled.
        native_graph = hasattr(self._config, "cuda_graph_strategy")
        self._device = device = CudaDevice()
        scratch_bytes = int(self._engine.device_memory_size_v2)

        def new_lane() -> Lane:
            # Slots of a lane never run at the same time, so they share one working memory.
            scratch = device.allocate(scratch_bytes) if scratch_bytes else 0

            def new_slot(stream: int, size: int) -> Slot:
                context = self._new_context(scratch, scratch_bytes)
                return Slot(device, stream, context, (self.window, self._outputs), size)

            return Lane(device, new_slot, capture=cuda_graph and not native_graph)

        self._lanes = [new_lane() for _ in range(LANES)]

    def _runtime_config(self, cuda_graph: bool) -> tuple[Any, Any]:
        """TensorRT-RTX: how to compile kernels on this machine, and a cache of those compiled earlier."""
        trt = self._trt
        if not hasattr(trt, "CudaGraphStrategy"):
            return None, None
        config = self._engine.create_runtime_config()
        config.set_execution_context_allocation_strategy(trt.ExecutionContextAllocationStrategy.USER_MANAGED)
        # Eager: the first batch waits for its kernels. Lazy would change kernels, and so the last digits of the
        # scores, in the middle of a file.
        config.dynamic_shapes_kernel_specialization_strategy = trt.DynamicShapesKernelSpecializationStrategy.EAGER
        if cuda_graph:
            config.cuda_graph_strategy = trt.CudaGraphStrategy.WHOLE_GRAPH_CAPTURE
        cache = config.create_runtime_cache()
        with suppress(OSError):  # of a newer driver or damaged: False, and stays empty
            self._cache_refused = not cache.deserialize(self._cache_path.read_bytes())
        config.set_runtime_cache(cache)
        return config, cache

    def _new_context(self, scratch: int, scratch_bytes: int) -> Context:
        strategy = self._trt.ExecutionContextAllocationStrategy.USER_MANAGED
        context = self._engine.create_execution_context(strategy if self._config is None else self._config)
        if context is None:
            raise EngineError(f"{self._title} made no execution context")
        context.set_device_memory(scratch, scratch_bytes)
        made: Context = context
        return made

    def run(self, windows: Floats) -> dict[str, Floats]:
        """(B,N,F) raw values -> every output of the graph, for any B."""
        if windows.shape[1:] != self.window.shape:
            raise EngineError(
                f"{self.path}: takes windows of shape {['batch', *self.window.shape]}, not {list(windows.shape)}"
            )
        with self._running():
            found = run_lanes(self._lanes, windows, self.profile, self._outputs)
            if not self._warm:  # a process that is killed later has not compiled for nothing
                self._warm = True
                self._keep_kernels()
        return found

    def compute(self, windows: int) -> None:
        """The same for as many windows as the last `run` left on the GPU, without copying anything: for benchmarks."""
        with self._running():
            compute_lanes(self._lanes, windows, self.profile)

    @contextmanager
    def _running(self) -> Iterator[None]:
        """One thread at a time; errors come with the words of TensorRT."""
        with self._lock:
            if self._device is None:
                raise EngineError(f"{self.path}: is closed")
            with recorded(self._trt) as messages:
                try:
                    yield
                except EngineError as error:
                    said = complaints(messages)
                    raise EngineError(f"{self.path}: {error}{f' ({said})' if said else ''}") from error

    def describe(self) -> str:
        """Runtime, version and GPU."""
        return f"{self._title} ({self.gpu.name}, SM{self.gpu.compute_capability})"

    def close(self) -> None:
        """Free the GPU; TensorRT-RTX's kernels are kept beside the plan for the next start."""
        with self._lock:
            if self._device is None:
                return
            self._keep_kernels()
            self._free()

    def _keep_kernels(self) -> None:
        if self._cache is not None:
            _keep(self._cache, self._cache_path, replace=self._cache_refused)
            self._cache_refused = False

    def _free(self) -> None:
        """Contexts go before the engine they came from, buffers after the contexts that use them."""
        self._lanes, self._config, self._cache, self._engine, self._runtime = [], None, None, None, None
        if self._device is not None:
            self._device.close()
        self._device = None


class Layout(NamedTuple):
    """What goes into a plan and comes out."""

    profile: BatchProfile
    window: Tensor
    outputs: list[Tensor]


def read_layout(trt: Any, engine: Any, path: Path) -> Layout:
    """Inputs, outputs and batch profile as the plan itself tells them."""
    inputs: list[tuple[int, Tensor]] = []
    outputs: list[Tensor] = []
    for name in (engine.get_tensor_name(i) for i in range(engine.num_io_tensors)):
        batch, *shape = (int(size) for size in engine.get_tensor_shape(name))
        if -1 in shape:
            raise EngineError(f"{path}: {name!r} varies in more than the batch; only the batch may be dynamic")
        try:
            dtype = np.dtype(trt.nptype(engine.get_tensor_dtype(name)))
        except TypeError:
            raise EngineError(f"{path}: {name!r} has a type that numpy lacks; export it as float32") from None
        tensor = Tensor(name, tuple(shape), dtype)
        if engine.get_tensor_mode(name) == trt.TensorIOMode.INPUT:
            inputs.append((batch, tensor))
        else:
            outputs.append(tensor)
    if len(inputs) != 1 or len(inputs[0][1].shape) != 2:
        raise EngineError(f"{path}: is not a model for windows; it should have one input (batch, steps, features)")
    batch, window = inputs[0]
    sizes = [batch] * 3
    if batch == -1:
        sizes = [int(shape[0]) for shape in engine.get_tensor_profile_shape(window.name, 0)]
    return Layout(BatchProfile(*sizes), window, outputs)


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise EngineError(f"{path}: cannot be read ({error.strerror or error})") from None


def _flavour(plan: bytes, path: Path) -> Flavour:
    if plan[:4] not in PLAN_TAGS:
        raise EngineError(f"{path}: does not start like a plan of TensorRT or TensorRT-RTX; export the model again")
    return PLAN_TAGS[plan[:4]]


def _keep(cache: Any, path: Path, *, replace: bool) -> None:
    """Save compiled kernels; a folder that cannot be written costs the next start some seconds, nothing else."""
    blob = cache.serialize()
    if blob is None:
        return
    # Of several workers, the one that has compiled for most batch sizes is to win; what was refused is of no use.
    with suppress(OSError):
        if not replace and path.stat().st_size >= len(bytes(blob)):
            return
    with suppress(OutputError), atomic_path(path) as temporary:
        temporary.write_bytes(bytes(blob))
