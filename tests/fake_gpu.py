"""A GPU and a TensorRT made of numpy: queued work runs only when someone waits for its stream, as on a real device."""

import hashlib
import json
from types import ModuleType, SimpleNamespace

import numpy as np

from at_infer.engines.tensorrt.lanes import Tensor
from at_infer.errors import EngineError
from at_infer.models.sidecar import seal, sidecar_path
from tests.exported import metadata

STEPS, FEATURES = 4, 3
WINDOW = Tensor("window", (STEPS, FEATURES), np.dtype(np.float32))
ERROR = Tensor("error", (STEPS,), np.dtype(np.float32))
DOUBLED = Tensor("doubled", (STEPS, FEATURES), np.dtype(np.float16))
OUTPUTS = [ERROR, DOUBLED]
VERSION = "1.2.3"
TAGS = {"tensorrt": b"ftrt", "rtx": b"vtrt"}


def expected(windows):
    return {"error": windows.mean(-1), "doubled": (2 * windows).astype(np.float16).astype(np.float32)}


class FakeDevice:
    def __init__(self):
        self.memory, self.queues, self.graphs = {}, {}, {}
        self.recording = None
        self.most_in_flight = self.launches = 0
        self.pinned_shapes = []
        self.capture_fails = self.closed = False

    def pinned(self, shape, dtype):
        self.pinned_shapes.append(shape)
        return np.full(shape, np.nan, dtype)

    def allocate(self, nbytes):
        address = 0x1000 * (len(self.memory) + 1)
        self.memory[address] = bytearray(nbytes)
        return address

    def open_stream(self):
        stream = len(self.queues) + 1
        self.queues[stream] = []
        return stream

    def queue(self, stream, work):
        if self.recording is not None:
            self.recording.append(work)
            return
        self.queues[stream].append(work)
        self.most_in_flight = max(self.most_in_flight, sum(map(bool, self.queues.values())))

    def upload(self, address, source, stream):
        self.queue(stream, lambda: self.memory[address].__setitem__(slice(None), source.tobytes()))

    def download(self, target, address, stream):
        def copy():
            target[...] = np.frombuffer(self.memory[address], target.dtype).reshape(target.shape)

        self.queue(stream, copy)

    def wait(self, stream):
        work, self.queues[stream] = self.queues[stream], []
        for step in work:
            step()

    def capture(self, stream, enqueue):
        assert not self.queues[stream], "a capture in the middle of a batch"
        self.recording = []
        try:
            enqueue()
            if self.capture_fails:
                raise EngineError("GPU: capturing a CUDA graph failed")
            self.graphs[len(self.graphs) + 1] = self.recording
        finally:
            self.recording = None
        return len(self.graphs)

    def launch(self, graph, stream):
        self.launches += 1
        for work in self.graphs[graph]:
            self.queue(stream, work)

    def close(self):
        self.closed = True


class FakeContext:
    """Like IExecutionContext: knows addresses and a shape, and computes when its stream gets there."""

    def __init__(self, device, largest=1000):
        self.device, self.largest = device, largest
        self.addresses = {}

    def set_device_memory(self, memory, size):
        assert len(self.device.memory[memory]) == size

    def set_input_shape(self, name, shape):
        assert name == WINDOW.name
        self.shape = shape
        return shape[0] <= self.largest

    def set_tensor_address(self, name, memory):
        self.addresses[name] = memory
        return True

    def execute_async_v3(self, stream_handle):
        def compute():
            memory = self.device.memory
            windows = np.frombuffer(memory[self.addresses["window"]], np.float32).reshape(self.shape)
            assert np.isfinite(windows).all(), "padding that a model might not bear"
            # by place, so that a test may give the outputs other names
            answers = [windows.mean(-1), (2 * windows).astype(np.float16)]
            names = [name for name in self.addresses if name != "window"]
            for name, answer in zip(names, answers, strict=True):
                memory[self.addresses[name]][:] = answer.tobytes()

        self.device.queue(stream_handle, compute)
        return True


class FakeRuntimeCache:
    def __init__(self):
        self.content = b""

    def deserialize(self, blob):
        self.content = bytes(blob)
        return True

    def serialize(self):
        return self.content + b"kernel"


class FakeRuntimeConfig:
    cuda_graph_strategy = dynamic_shapes_kernel_specialization_strategy = None

    def set_execution_context_allocation_strategy(self, strategy):
        self.allocation = strategy

    def create_runtime_cache(self):
        return FakeRuntimeCache()

    def set_runtime_cache(self, cache):
        self.cache = cache
        return True


class FakeEngine:
    num_io_tensors = 3
    device_memory_size_v2 = 70  # unlike any buffer's

    def __init__(self, device):
        self.device = device
        self.tensors = {tensor.name: tensor for tensor in (WINDOW, *OUTPUTS)}
        self.batch = -1
        self.contexts, self.created_with = [], []

    def get_tensor_name(self, index):
        return list(self.tensors)[index]

    def get_tensor_shape(self, name):
        return (self.batch, *self.tensors[name].shape)

    def get_tensor_dtype(self, name):
        return self.tensors[name].dtype

    def get_tensor_mode(self, name):
        return "in" if name == WINDOW.name else "out"

    def get_tensor_profile_shape(self, name, profile_index):
        assert (name, profile_index) == (WINDOW.name, 0)
        return [(size, *WINDOW.shape) for size in (1, 4, 8)]

    def create_runtime_config(self):
        return FakeRuntimeConfig()

    def create_execution_context(self, how):
        self.created_with.append(how)
        self.contexts.append(FakeContext(self.device))
        return self.contexts[-1]


class FakeLogger:
    pass


def fake_tensorrt(engine, version=VERSION, *, rtx=False):
    """A module with what `trt.py` uses."""

    class Runtime:
        def __init__(self, logger):
            self.logger = logger

        def deserialize_cuda_engine(self, _plan):
            if engine is None:
                self.logger.log(SimpleNamespace(name="ERROR"), "Error Code 1: it is\nno plan")
            return engine

    module = ModuleType("tensorrt")
    module.__version__ = version
    module.ILogger = FakeLogger
    module.Runtime = Runtime
    module.TensorIOMode = SimpleNamespace(INPUT="in")
    module.ExecutionContextAllocationStrategy = SimpleNamespace(USER_MANAGED="user managed")
    module.nptype = np.dtype
    if rtx:
        module.EngineValidity = SimpleNamespace(VALID="valid", INVALID="invalid")
        Runtime.get_engine_validity = lambda _self, _plan: ("valid", 0)
        module.CudaGraphStrategy = SimpleNamespace(WHOLE_GRAPH_CAPTURE="whole graph")
        module.DynamicShapesKernelSpecializationStrategy = SimpleNamespace(EAGER="eager")
    return module


def write_plan(folder, flavour="rtx", *, sidecar=True, metadata_changes=None, **facts):
    path = folder / "model.trt"
    plan = TAGS[flavour] + bytes(60)
    path.write_bytes(plan)
    known = {
        "flavour": flavour,
        "version": VERSION,
        "compute_capabilities": [86, 89],
        "plan_sha256": hashlib.sha256(plan).hexdigest(),
        "onnx_sha256": "0" * 64,
        "inputs": [],
        "outputs": [],
    }
    if sidecar:
        sealed = seal(metadata(batch=[1, 4, 8], engine=known | facts, **(metadata_changes or {})))
        sidecar_path(path).write_text(json.dumps(sealed.to_dict()))
    return path
