"""Opening and running plans: every check that comes before a GPU is needed, and the rest on a fake one."""

import sys
from types import SimpleNamespace

import numpy as np
import pytest

from at_infer.engines import open_engine
from at_infer.engines.tensorrt import gpu, modules
from at_infer.engines.tensorrt import plan as trt
from at_infer.engines.tensorrt.gpu import CudaDevice, Gpu, explain_absence, find_gpu
from at_infer.engines.tensorrt.modules import complaints, load_flavour, recorded, shared_logger
from at_infer.engines.tensorrt.plan import PlanEngine
from at_infer.errors import EngineError, MissingExtraError
from at_infer.models.kinds import TITLES
from at_infer.models.sidecar import runtime_cache_path, runtime_caches
from tests import fake_gpu
from tests.fake_gpu import FEATURES, STEPS, VERSION, FakeEngine, FakeRuntimeCache, expected, fake_tensorrt, write_plan


def has_driver():
    try:
        from cuda.bindings import runtime
    except ImportError:
        return False
    return bool(runtime.cudaDriverGetVersion()[1])


no_driver = pytest.mark.skipif(
    has_driver() or sys.platform == "darwin", reason="shows what cuda-bindings says without an NVIDIA driver"
)


def make_windows(count):
    return np.random.default_rng(count).normal(size=(count, STEPS, FEATURES)).astype(np.float32)


# Without a GPU


@no_driver
def test_a_machine_without_driver_gets_one_clear_sentence(tmp_path):
    path = write_plan(tmp_path)
    with pytest.raises(EngineError) as caught:
        open_engine(path)
    assert str(caught.value) == (
        f"{path}: needs an NVIDIA GPU, and this machine has no NVIDIA driver; "
        "install the driver, or use the .onnx file, which runs on CPU"
    )


@no_driver
def test_no_runtime_is_created_before_the_driver_has_answered(tmp_path, monkeypatch):
    monkeypatch.setattr(trt, "load_flavour", lambda _: pytest.fail("TensorRT was loaded"))
    with pytest.raises(EngineError, match="no NVIDIA driver"):
        PlanEngine(write_plan(tmp_path))


@no_driver
def test_every_cuda_call_is_made_with_arguments_that_cuda_takes():
    device = CudaDevice()
    array = np.zeros(4, np.float32)
    calls = [
        lambda: device.pinned((2, 3), np.float32),
        lambda: device.allocate(16),
        lambda: device.open_stream(),
        lambda: device.upload(0x1000, array, 0x20),
        lambda: device.download(array, 0x1000, 0x20),
        lambda: device.wait(0x20),
        lambda: device.capture(0x20, lambda: None),
        lambda: device.launch(0x30, 0x20),
    ]
    for call in calls:
        with pytest.raises(EngineError, match=r"^GPU: .* failed: CUDA driver version is insufficient"):
            call()
    device.close()


@pytest.mark.parametrize(
    ("error", "driver", "words"),
    [
        ("cudaErrorInsufficientDriver", 0, "no NVIDIA driver"),
        (
            "cudaErrorInsufficientDriver",
            12040,
            "supports CUDA 12.4, cuda-bindings is made for 13.5; .*cuda-bindings<13",
        ),
        ("cudaErrorNoDevice", 13000, "shows no GPU.*CUDA_VISIBLE_DEVICES"),
        ("cudaSuccess", 13000, "shows no GPU"),
        ("cudaErrorSystemDriverMismatch", 13000, r"CUDA does not start \(cudaErrorSystemDriverMismatch\)"),
    ],
)
def test_each_reason_for_having_no_gpu_has_its_sentence(error, driver, words):
    with pytest.raises(EngineError, match=words):
        raise EngineError(explain_absence(error, driver, 13050))


def test_missing_cuda_bindings_name_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "cuda.bindings", None)
    with pytest.raises(MissingExtraError, match=r"model\.trt: needs the package cuda-bindings.*\[rtx\]"):
        find_gpu("model.trt")


def test_the_gpu_is_described_by_name_and_architecture(monkeypatch):
    success = SimpleNamespace(cudaSuccess=0)
    properties = SimpleNamespace(name=b"NVIDIA RTX 4090", major=8, minor=9)
    fake = SimpleNamespace(
        cudaError_t=success,
        cudaGetDeviceCount=lambda: (0, 1),
        cudaDriverGetVersion=lambda: (0, 12080),
        cudaRuntimeGetVersion=lambda: (0, 12090),
        cudaGetDeviceProperties=lambda _: (0, properties),
    )
    monkeypatch.setattr(gpu, "_load_runtime", lambda _: fake)
    assert find_gpu() == Gpu("NVIDIA RTX 4090", 89)


# Checks before anything is loaded


def test_a_plan_without_sidecar_is_not_loaded_unasked(tmp_path, machine):
    path = write_plan(tmp_path, machine.flavour, sidecar=False)
    with pytest.raises(EngineError, match=r"has no sidecar model\.trt\.json.*trust=True"):
        open_engine(path)
    assert not machine.engine.contexts


def test_a_swapped_plan_is_refused_even_with_trust(tmp_path, machine):
    path = write_plan(tmp_path, machine.flavour)
    path.write_bytes(path.read_bytes() + b"!")
    with pytest.raises(EngineError, match="sha256 differs"):
        PlanEngine(path, trust=True)


def test_a_trusted_plan_runs_and_says_what_it_lacks_for_scoring(tmp_path, machine):
    windows = make_windows(3)
    with PlanEngine(write_plan(tmp_path, machine.flavour, sidecar=False), trust=True) as engine:
        assert engine.metadata is None
        np.testing.assert_array_equal(engine.run(windows)["error"], expected(windows)["error"])
        with pytest.raises(EngineError, match="cannot score, it lacks metadata"):
            engine.score(windows)


def test_a_file_that_is_no_plan_is_refused(tmp_path, machine):
    path = tmp_path / "model.trt"
    path.write_bytes(b"PK\x03\x04 something")
    with pytest.raises(EngineError, match="does not start like a plan"):
        PlanEngine(path, trust=True)


def test_a_missing_runtime_names_its_extra(tmp_path, machine):
    machine.modules.clear()
    with pytest.raises(MissingExtraError, match=rf"pip install .*\[{machine.flavour}\]'"):
        PlanEngine(write_plan(tmp_path, machine.flavour))


def test_another_version_is_refused(tmp_path, machine):
    with pytest.raises(EngineError, match=r"was built by TensorRT\S* 9\.9, installed is 1\.2\.3"):
        PlanEngine(write_plan(tmp_path, machine.flavour, version="9.9"))


def test_another_architecture_is_refused(tmp_path, machine):
    with pytest.raises(EngineError, match="was built for compute capability 120, this GPU has 89"):
        PlanEngine(write_plan(tmp_path, machine.flavour, compute_capabilities=[120]))


def test_a_plan_that_does_not_load_comes_with_the_words_of_tensorrt(tmp_path, machine):
    machine.modules[machine.flavour] = fake_tensorrt(None, VERSION)
    with pytest.raises(EngineError, match=r"cannot load it \(Error Code 1: it is no plan\); export"):
        PlanEngine(write_plan(tmp_path, machine.flavour))


@pytest.mark.parametrize(
    ("tensor", "words"),
    [
        (fake_gpu.Tensor("error", (-1,), np.dtype(np.float32)), "'error' varies in more than the batch"),
        (fake_gpu.Tensor("window", (5,), np.dtype(np.float32)), "is not a model for windows"),
    ],
)
def test_a_plan_for_something_else_is_refused_and_its_memory_freed(tmp_path, machine, tensor, words):
    machine.engine.tensors[tensor.name] = tensor
    with pytest.raises(EngineError, match=words):
        PlanEngine(write_plan(tmp_path, machine.flavour))


def test_a_type_that_numpy_lacks_is_told(tmp_path, machine):
    def nptype(kind):
        raise TypeError

    machine.modules[machine.flavour].nptype = nptype
    with pytest.raises(EngineError, match="'window' has a type that numpy lacks"):
        PlanEngine(write_plan(tmp_path, machine.flavour))


# Running, on the fake


@pytest.mark.parametrize("count", [0, 1, 3, 8, 29])
def test_any_number_of_windows_runs(tmp_path, machine, count):
    windows = make_windows(count)
    with open_engine(write_plan(tmp_path, machine.flavour)) as engine:
        assert engine.outputs == ("error", "doubled")
        for _ in range(2):
            found = engine.run(windows)
            for name, values in expected(windows).items():
                np.testing.assert_array_equal(found[name], values)


def test_a_plan_of_one_fixed_batch_size_pads_everything_to_it(tmp_path, machine):
    machine.engine.batch = 8
    with PlanEngine(write_plan(tmp_path, machine.flavour)) as engine:
        engine.run(make_windows(3))
    assert {context.shape[0] for context in machine.engine.contexts} == {8}


def test_windows_of_another_shape_are_refused(tmp_path, machine):
    with (
        PlanEngine(write_plan(tmp_path, machine.flavour)) as engine,
        pytest.raises(EngineError, match=r"takes windows of shape \['batch', 4, 3\], not \[2, 5, 3\]"),
    ):
        engine.run(np.zeros((2, 5, 3), np.float32))


def test_tensorrt_gets_graphs_captured_and_rtx_captures_its_own(tmp_path, machine):
    with PlanEngine(write_plan(tmp_path, machine.flavour)) as engine:
        engine.run(make_windows(40))
    (how, *_) = machine.engine.created_with
    if machine.flavour == "tensorrt":
        assert how == "user managed"
        assert len(machine.device.graphs) == 2
    else:
        assert how.allocation == "user managed"
        assert how.cuda_graph_strategy == "whole graph"
        assert how.dynamic_shapes_kernel_specialization_strategy == "eager"
        assert not machine.device.graphs


def test_graphs_can_be_switched_off(tmp_path, machine):
    with PlanEngine(write_plan(tmp_path, machine.flavour), cuda_graph=False) as engine:
        engine.run(make_windows(40))
    assert not machine.device.graphs
    assert getattr(machine.engine.created_with[0], "cuda_graph_strategy", None) is None


def test_contexts_of_a_lane_share_its_working_memory(tmp_path, machine):
    with PlanEngine(write_plan(tmp_path, machine.flavour)) as engine:
        engine.run(make_windows(29))
        engine.run(make_windows(1))
    scratch = [memory for memory in machine.device.memory.values() if len(memory) == FakeEngine.device_memory_size_v2]
    assert len(scratch) == trt.LANES < len(machine.engine.contexts)


def test_compiled_kernels_are_kept_beside_the_plan_for_the_next_start(tmp_path, machine):
    path = write_plan(tmp_path, machine.flavour)
    for _ in range(2):
        with PlanEngine(path) as engine:
            engine.run(make_windows(1))
    kept = runtime_cache_path(path, "GeForce", VERSION)
    assert kept.exists() == (machine.flavour == "rtx")
    assert machine.flavour == "tensorrt" or kept.read_bytes() == b"kernelkernel"


def test_compiled_kernels_are_kept_after_the_first_run_and_not_only_at_the_end(tmp_path, machine):
    path = write_plan(tmp_path, machine.flavour)
    kept = runtime_cache_path(path, "GeForce", VERSION)
    with PlanEngine(path) as engine:
        assert not kept.exists()
        engine.run(make_windows(1))
        assert kept.exists() == (machine.flavour == "rtx")


def test_a_worker_that_has_compiled_less_leaves_the_kernels_of_another(tmp_path, machine):
    path = write_plan(tmp_path, machine.flavour)
    kept = runtime_cache_path(path, "GeForce", VERSION)
    with PlanEngine(path) as engine:
        kept.write_bytes(b"kernels of a worker with more batch sizes")
        engine.run(make_windows(1))
    assert kept.read_bytes() == b"kernels of a worker with more batch sizes"


def test_kernels_that_this_driver_refuses_are_replaced_however_many_they_are(tmp_path, machine, monkeypatch):
    monkeypatch.setattr(FakeRuntimeCache, "deserialize", lambda *_: False)
    path = write_plan(tmp_path, machine.flavour)
    kept = runtime_cache_path(path, "GeForce", VERSION)
    kept.write_bytes(b"kernels of a newer driver")
    with PlanEngine(path) as engine:
        engine.run(make_windows(1))
    assert kept.read_bytes() == (b"kernel" if machine.flavour == "rtx" else b"kernels of a newer driver")


def test_another_gpu_in_the_same_folder_has_its_own_kernels(tmp_path, machine, monkeypatch):
    path = write_plan(tmp_path, machine.flavour)
    for name in ("NVIDIA GeForce RTX 4090", "NVIDIA RTX A6000"):
        monkeypatch.setattr(trt, "find_gpu", lambda _, name=name: Gpu(name, 89))
        with PlanEngine(path) as engine:
            engine.run(make_windows(1))
    found = {path.name for path in runtime_caches(path)}
    expected = {f"model.trt.nvidia-geforce-rtx-4090.{VERSION}.cache", f"model.trt.nvidia-rtx-a6000.{VERSION}.cache"}
    assert found == (expected if machine.flavour == "rtx" else set())


def test_a_plan_that_is_not_valid_here_is_refused_before_it_is_loaded(tmp_path, machine, monkeypatch):
    module = machine.modules[machine.flavour]
    loaded = []
    monkeypatch.setattr(module.Runtime, "deserialize_cuda_engine", lambda *_: loaded.append(1))
    monkeypatch.setattr(module.Runtime, "get_engine_validity", lambda *_: ("invalid", 0x40), raising=False)
    monkeypatch.setattr(module, "EngineValidity", SimpleNamespace(INVALID="invalid"), raising=False)
    with pytest.raises(EngineError, match=r"refuses to load it on GeForce \(diagnostics 64\)"):
        PlanEngine(write_plan(tmp_path, machine.flavour))
    assert not loaded


def test_a_portable_plan_may_bring_its_runtime_and_run_on_later_versions(tmp_path, machine):
    if machine.flavour == "rtx":
        pytest.skip("only TensorRT has portable plans")
    path = write_plan(tmp_path, "tensorrt", portable=True, version="1.0.0", compute_capabilities=[80])
    with PlanEngine(path) as engine:
        assert engine._runtime.engine_host_code_allowed
    with PlanEngine(write_plan(tmp_path, "tensorrt")) as engine:
        assert not hasattr(engine._runtime, "engine_host_code_allowed")


def test_a_cache_that_cannot_be_written_is_no_error(tmp_path, machine):
    path = write_plan(tmp_path, machine.flavour)
    runtime_cache_path(path, "GeForce", VERSION).mkdir()
    PlanEngine(path).close()


def test_an_error_while_running_comes_with_the_words_of_tensorrt(tmp_path, machine, monkeypatch):
    def fail(context, stream_handle):
        logger = shared_logger(machine.modules[machine.flavour])
        logger.log(SimpleNamespace(name="ERROR"), "enqueueV3: out of memory")
        return False

    monkeypatch.setattr(fake_gpu.FakeContext, "execute_async_v3", fail)
    words = r"model\.trt: TensorRT refused to run a batch \(enqueueV3: out of memory\)"
    with PlanEngine(write_plan(tmp_path, machine.flavour)) as engine, pytest.raises(EngineError, match=words):
        engine.run(make_windows(2))


def test_a_closed_engine_has_freed_the_gpu_and_says_so(tmp_path, machine):
    engine = PlanEngine(write_plan(tmp_path, machine.flavour))
    engine.run(make_windows(1))
    engine.close()
    engine.close()
    assert machine.device.closed
    with pytest.raises(EngineError, match="is closed"):
        engine.run(make_windows(1))


def test_an_engine_names_runtime_version_and_gpu(tmp_path, machine):
    with PlanEngine(write_plan(tmp_path, machine.flavour)) as engine:
        assert engine.describe() == f"{TITLES[machine.flavour]} 1.2.3 (GeForce, SM89)"


# The fake against the real bindings


@pytest.mark.skipif(sys.platform == "darwin", reason="TensorRT-RTX has no wheels for macOS")
@pytest.mark.parametrize(
    ("fake", "real"),
    [
        (fake_gpu.FakeContext, "IExecutionContext"),
        (fake_gpu.FakeEngine, "ICudaEngine"),
        (fake_gpu.FakeRuntimeConfig, "IRuntimeConfig"),
        (fake_gpu.FakeRuntimeCache, "IRuntimeCache"),
    ],
)
def test_the_fake_offers_nothing_that_tensorrt_rtx_lacks(fake, real):
    bindings = load_flavour("rtx")
    offered = [name for name in vars(fake) if not name.startswith("_")]
    assert offered
    assert [name for name in offered if not hasattr(getattr(bindings, real), name)] == []


@pytest.mark.skipif(sys.platform == "darwin", reason="TensorRT-RTX has no wheels for macOS")
def test_names_of_modules_and_enums_exist_in_tensorrt_rtx():
    bindings = load_flavour("rtx")
    fake = fake_tensorrt(None, rtx=True)
    for name, value in vars(fake).items():
        if name.startswith("__") and name != "__version__":
            continue
        assert hasattr(bindings, name)
        for member in vars(value) if isinstance(value, SimpleNamespace) else ():
            assert hasattr(getattr(bindings, name), member)


def test_the_logger_is_one_per_process_and_each_block_sees_its_own_messages():
    module = fake_tensorrt(None)
    logger = shared_logger(module)
    assert shared_logger(module) is logger
    with recorded(module) as outer:
        logger.log(SimpleNamespace(name="ERROR"), "first\n  line")
        with recorded(module) as inner:
            logger.log(SimpleNamespace(name="INFO"), "hello")
        logger.log(SimpleNamespace(name="INTERNAL_ERROR"), "second")
    logger.log(SimpleNamespace(name="ERROR"), "nobody listens")
    assert [message.text for message in inner] == ["hello"]
    assert complaints(outer) == "first line; second"


def test_a_tensorrt_that_does_not_load_is_told_apart_from_an_absent_one(monkeypatch):
    def broken(name):
        raise ImportError("libnvinfer.so.10: cannot open shared object file")

    def absent(name):
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)

    monkeypatch.setattr(modules.importlib, "import_module", absent)
    assert load_flavour("tensorrt") is None
    monkeypatch.setattr(modules.importlib, "import_module", broken)
    with pytest.raises(MissingExtraError, match=r"TensorRT: is installed but does not load \(libnvinfer"):
        load_flavour("tensorrt")
