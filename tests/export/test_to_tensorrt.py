"""Real TensorRT-RTX plans, built on CPU, and every way in which a plan cannot be built."""

import hashlib
import json
import sys
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper
from torch import nn

from at_infer.config import PRESETS, DiscrepancyConfig, ModelConfig, ScoreConfig
from at_infer.engines.ort import OnnxEngine
from at_infer.engines.tensorrt.gpu import Gpu
from at_infer.engines.tensorrt.modules import load_flavour
from at_infer.engines.tensorrt.plan import PlanEngine
from at_infer.errors import ConfigError, EngineError, ExportError, MissingExtraError, OutputError
from at_infer.models.sidecar import load_sidecar, runtime_cache_path, sidecar_path
from at_infer.models.statistics import Normal, Scaler
from export import to_tensorrt
from export.config import ExportConfig
from export.graphs import OUTPUTS, ScoreGraph, lower_precision
from export.quantize import quantize_for_engines
from export.to_tensorrt import (
    BatchProfile,
    RefusalError,
    build_plan,
    choose_flavour,
    make_portable,
    parse_compute_capabilities,
)
from tests.exported import metadata
from training.model import AnomalyTransformer

pytestmark = [
    pytest.mark.tensorrt,
    pytest.mark.skipif(sys.platform == "darwin", reason="TensorRT-RTX has no wheels for macOS"),
]

CONFIGS = {
    "tiny": ModelConfig(features=3, window=8, width=16, heads=2, layers=1, feed_forward=16),
    "paper": replace(PRESETS["paper"].model, features=25, layers=1),  # its width; layers are alike
}
BATCH = BatchProfile(1, 32, 256)
SCORES = {
    "fp32": ScoreConfig(mode="paper"),
    "centred": ScoreConfig(mode="centred", normalise_errors=True),
    "calibrated": ScoreConfig(mode="calibrated"),
}


class AllHalf(nn.Module):
    """Every product in half precision, the only kind that Turing has in TensorRT-RTX."""

    def __init__(self, network):
        super().__init__()
        self.network = network.half()

    def forward(self, window):
        reconstruction, _ = self.network(window.half())
        return reconstruction.float(), (reconstruction.float() - window).square().mean(-1)


@pytest.fixture(scope="module")
def onnx_file(once, trace, real_trace):
    """The file of a model and precision; tracing takes longer than building."""

    def write(path, size, precision):
        if precision == "int8":
            windows = np.random.default_rng(0).normal(size=(8, *shape(size))).astype(np.float32)
            model = quantize_for_engines(onnx.load(make(size)), windows)
        else:
            model = trace_graph(real_trace if precision == "all-half" else trace, CONFIGS[size], precision)
        onnx.save(model, path)

    def make(size, precision="fp32"):
        folder = once(f"{size}-{precision}", lambda target: write(target / "model.onnx", size, precision))
        return folder / "model.onnx"

    return make


def trace_graph(trace, config, precision):
    torch.manual_seed(0)
    network = AnomalyTransformer(config).eval()
    if precision == "all-half":
        return trace(AllHalf(network), ["reconstruction", "error"])
    if precision in ("fp16", "bf16"):
        lower_precision(network, {"fp16": torch.float16, "bf16": torch.bfloat16}[precision])
    scaler = Scaler(mean=[0.5] * config.features, scale=[2.0] * config.features)
    usual = [0.5] * config.features
    normal = Normal(error=usual, centred_error=usual, discrepancy={"paper": [20.0, 2.0]})
    score = SCORES.get(precision, SCORES["fp32"])
    return trace(ScoreGraph(network, scaler, DiscrepancyConfig(), score, normal), OUTPUTS)


def shape(size):
    return CONFIGS[size].window, CONFIGS[size].features


def build(onnx_path, folder, *, precision="fp32", capabilities=(86,), batch=BATCH, **options):
    plan_path = folder / "model.trt"
    described = build_plan(
        onnx_path,
        plan_path,
        metadata(precision=precision),
        flavour="rtx",
        batch=batch,
        compute_capabilities=capabilities,
        **options,
    )
    return plan_path, described


def write_graph(path, nodes, *, inputs=("window",), shape=("batch", 8, 3)):
    made = [helper.make_tensor_value_info(name, TensorProto.FLOAT, list(shape)) for name in inputs]
    graph = helper.make_graph(nodes, "g", made, [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20), helper.make_opsetid("ours", 1)])
    onnx.save(model, path)
    return path


# Plans


@pytest.fixture(scope="module")
def built(once, onnx_file):
    """The folder with the tiny plan, built once."""
    return once("tiny-plan", lambda folder: build(onnx_file("tiny"), folder))


def test_fp32_plans_are_built_for_several_architectures(tmp_path, onnx_file):
    plan_path, described = build(onnx_file("paper"), tmp_path, capabilities=[80, 86, 89, 120])
    assert plan_path.read_bytes().startswith(b"vtrt")
    assert described.engine["compute_capabilities"] == [80, 86, 89, 120]


@pytest.mark.parametrize("mode", ["centred", "calibrated"])
def test_modes_that_compare_with_the_validation_part_are_built(tmp_path, onnx_file, mode):
    plan_path, _ = build(onnx_file("tiny", mode), tmp_path)
    assert plan_path.read_bytes().startswith(b"vtrt")


@pytest.mark.parametrize(("size", "precision"), [("paper", "fp16"), ("tiny", "bf16"), ("paper", "int8")])
def test_plans_of_lower_precision_are_built_and_are_not_larger(tmp_path, once, onnx_file, size, precision):
    full = (once(f"{size}-plan", lambda folder: build(onnx_file(size), folder)) / "model.trt").stat().st_size
    lower = (
        build(onnx_file(size, precision), tmp_path, precision=precision, capabilities=[86, 89, 120])[0].stat().st_size
    )
    assert lower < full * {"tiny": 1.5, "paper": 0.8}[size]  # of a tiny plan, most is code


def test_turing_builds_where_every_product_is_fp16(tmp_path, onnx_file):
    _, described = build(onnx_file("tiny", "all-half"), tmp_path, precision="fp16", capabilities=[75, 86])
    assert described.engine["compute_capabilities"] == [75, 86]


def test_by_default_a_plan_serves_every_architecture_but_turing(tmp_path, onnx_file):
    _, described = build(onnx_file("tiny"), tmp_path, capabilities=None)
    assert described.engine["compute_capabilities"] == [80, 86, 89, 120, 121]


def test_tf32_is_off_unless_asked_for(tmp_path, onnx_file, built):
    assert load_sidecar(built / "model.trt").engine["tf32"] is False
    assert build(onnx_file("tiny"), tmp_path, tf32=True)[1].engine["tf32"] is True


def test_the_sidecar_says_what_the_plan_is_made_of(onnx_file, built):
    onnx_path, plan_path = onnx_file("tiny"), built / "model.trt"
    values = json.loads(sidecar_path(plan_path).read_text())
    assert values["batch"] == [1, 32, 256]
    assert values["columns"] == metadata().columns
    engine = values["engine"]
    assert engine["flavour"] == "rtx"
    assert engine["version"] == load_flavour("rtx").__version__
    assert engine["plan_sha256"] == hashlib.sha256(plan_path.read_bytes()).hexdigest()
    assert engine["onnx_sha256"] == hashlib.sha256(onnx_path.read_bytes()).hexdigest()
    assert engine["inputs"] == [{"name": "window", "shape": [-1, 8, 3], "dtype": "float"}]
    assert engine["outputs"] == [
        {"name": "score", "shape": [-1, 8], "dtype": "float"},
        {"name": "error", "shape": [-1, 8], "dtype": "float"},
        {"name": "discrepancy", "shape": [-1, 8], "dtype": "float"},
        {"name": "reconstruction", "shape": [-1, 8, 3], "dtype": "float"},
    ]


def test_the_log_of_the_builder_is_kept_without_its_chatter(built):
    log = (built / "model.trt.log").read_text()
    assert "[INFO] Opset version:    20" in log
    assert "VERBOSE" not in log


def test_nothing_else_is_left_beside_the_plan(built):
    assert sorted(path.name for path in built.iterdir()) == ["model.trt", "model.trt.json", "model.trt.log"]


def test_kernels_compiled_for_an_older_plan_are_thrown_away(tmp_path, onnx_file):
    caches = [runtime_cache_path(tmp_path / "model.trt", gpu, "1.7.1") for gpu in ("RTX 4090", "RTX A6000")]
    for cache in caches:
        cache.write_bytes(b"of another plan")
    build(onnx_file("tiny"), tmp_path)
    assert not any(cache.exists() for cache in caches)


def test_a_portable_plan_is_asked_for_with_both_kinds_of_compatibility():
    flags = []
    config = SimpleNamespace(set_flag=flags.append)
    trt = SimpleNamespace(
        BuilderFlag=SimpleNamespace(VERSION_COMPATIBLE="version"),
        HardwareCompatibilityLevel=SimpleNamespace(AMPERE_PLUS="ampere"),
    )
    make_portable(trt, config)
    assert (flags, config.hardware_compatibility_level) == (["version"], "ampere")
    with pytest.raises(RefusalError):
        make_portable(SimpleNamespace(BuilderFlag=SimpleNamespace()), config)


def test_the_bindings_name_what_portable_plans_ask_for():
    """TensorRT-RTX has the same names; it refuses them when it builds."""
    trt = load_flavour("rtx")
    assert hasattr(trt.BuilderFlag, "VERSION_COMPATIBLE")
    assert hasattr(trt.HardwareCompatibilityLevel, "AMPERE_PLUS")
    assert hasattr(trt.Runtime, "get_engine_validity")
    assert hasattr(trt.EngineValidity, "INVALID")


def test_portable_is_for_tensorrt_only():
    with pytest.raises(ExportError, match="portable: is for plans of TensorRT; pass engine='tensorrt'"):
        ExportConfig(portable=True, engine="rtx")
    assert ExportConfig(portable=True, engine="tensorrt").portable


# What cannot be built


def test_a_node_that_tensorrt_does_not_know_is_named_with_the_words_of_the_parser(tmp_path):
    path = write_graph(tmp_path / "m.onnx", [helper.make_node("Nonsense", ["window"], ["y"], name="n7", domain="ours")])
    with pytest.raises(ExportError) as caught:
        build(path, tmp_path)
    message = str(caught.value)
    assert message.startswith(f"{path}: TensorRT-RTX ")
    assert "INVALID_NODE at Nonsense 'n7': " in message
    assert "Plugin not found" in message
    assert "\n" not in message
    assert not (tmp_path / "model.trt").exists()
    assert "Nonsense" in (tmp_path / "model.trt.log").read_text()


def test_a_node_without_its_input_is_named(tmp_path):
    path = write_graph(tmp_path / "m.onnx", [helper.make_node("Reshape", ["window", "shape"], ["y"], name="n8")])
    with pytest.raises(ExportError, match=r"INVALID_GRAPH at Reshape 'n8': .*not registered"):
        build(path, tmp_path)


def test_what_only_the_builder_refuses_comes_with_the_words_of_its_log(tmp_path, onnx_file):
    with pytest.raises(
        ExportError, match=r"cannot build a plan from it: .*Turing \(SM75\): FP32 GEMM is not supported"
    ):
        build(onnx_file("tiny"), tmp_path, precision="fp16", capabilities=[75])


@pytest.mark.parametrize("content", [b"", b"hello, this is not ONNX", b"\x00" * 100])
def test_a_file_that_is_no_onnx_model_is_refused(tmp_path, content):
    (tmp_path / "m.onnx").write_bytes(content)
    with pytest.raises(ExportError, match=r"m\.onnx: TensorRT-RTX \S+ cannot (parse|use) it"):
        build(tmp_path / "m.onnx", tmp_path)


def test_a_missing_onnx_file_is_told(tmp_path):
    with pytest.raises(ExportError, match=r"absent\.onnx: cannot be read"):
        build(tmp_path / "absent.onnx", tmp_path)


def test_a_graph_with_other_inputs_is_refused(tmp_path):
    node = helper.make_node("Add", ["window", "more"], ["y"])
    path = write_graph(tmp_path / "m.onnx", [node], inputs=("window", "more"))
    with pytest.raises(ExportError, match=r"has one input, 'window', this has \['window', 'more'\]"):
        build(path, tmp_path)


@pytest.mark.parametrize("shape", [(4, 8, 3), ("batch", "steps", 3)])
def test_the_batch_and_nothing_else_has_to_be_dynamic(tmp_path, shape):
    path = write_graph(tmp_path / "m.onnx", [helper.make_node("Abs", ["window"], ["y"])], shape=shape)
    with pytest.raises(ExportError, match="the batch has to be dynamic and nothing else"):
        build(path, tmp_path)


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_turing_is_refused_before_building_and_fp16_suggested(precision):
    refusal = rf"^compute_capabilities: TensorRT-RTX has no {precision} matrix products on Turing; .*precision='fp16'"
    with pytest.raises(ExportError, match=refusal):
        ExportConfig(engine="rtx", precision=precision, compute_capabilities=(75, 86))


def test_dynamic_int8_is_for_cpus(tmp_path, onnx_file):
    with pytest.raises(ExportError, match=r"^precision: int8-dynamic is for CPUs"):
        build(onnx_file("tiny"), tmp_path, precision="int8-dynamic")


def test_a_folder_that_does_not_exist_is_told(tmp_path, onnx_file):
    with pytest.raises(OutputError, match=r"model\.trt"):
        build(onnx_file("tiny"), tmp_path / "absent")


def test_a_full_disk_leaves_the_old_plan_with_its_sidecar(tmp_path, onnx_file, monkeypatch):
    plan_path, described = build(onnx_file("tiny"), tmp_path)
    write_text = type(plan_path).write_text

    def full(path, text, **options):
        if ".json." in path.name:
            raise OSError(28, "No space left on device")
        return write_text(path, text, **options)

    monkeypatch.setattr(type(plan_path), "write_text", full)
    with pytest.raises(OutputError, match="No space left"):
        build(onnx_file("tiny"), tmp_path, tf32=True)
    assert load_sidecar(plan_path) == described


# Choices


@pytest.mark.parametrize(
    ("text", "numbers"), [("86", [86]), ("86,89,120", [86, 89, 120]), (" 8.6, 12.0 ,86", [86, 120])]
)
def test_architectures_are_read_as_people_write_them(text, numbers):
    assert parse_compute_capabilities(text) == numbers


@pytest.mark.parametrize("text", ["", "90", "86,,89", "sm86", "8.6.1", "-86", "0"])
def test_an_unknown_architecture_is_refused_and_the_known_ones_named(text):
    with pytest.raises(ConfigError, match="is unknown; TensorRT-RTX builds for 75, 80, 86, 89, 120, 121"):
        parse_compute_capabilities(text)


@pytest.mark.parametrize("text", ["87", "8.7", "86,110", "11.0"])
def test_jetson_is_sent_to_tensorrt_on_the_device(text):
    with pytest.raises(ConfigError, match=r"is Jetson .*TensorRT-RTX does not target; run the export on the device"):
        parse_compute_capabilities(text)


@pytest.fixture
def installed(monkeypatch):
    """Pretend that some flavours are installed, and that there is a GPU."""

    def pretend(*flavours, gpu=False):
        def find_gpu(source="GPU"):
            if gpu:
                return Gpu("GeForce", 89)
            raise EngineError(f"{source}: needs an NVIDIA GPU")

        monkeypatch.setattr(to_tensorrt, "load_flavour", lambda name: name if name in flavours else None)
        monkeypatch.setattr(to_tensorrt, "find_gpu", find_gpu)

    return pretend


@pytest.mark.parametrize(
    ("flavours", "gpu", "chosen"),
    [
        (("tensorrt", "rtx"), True, "tensorrt"),
        (("tensorrt", "rtx"), False, "rtx"),
        (("rtx",), True, "rtx"),
        (("rtx",), False, "rtx"),
        (("tensorrt",), False, None),
        ((), True, None),
    ],
)
def test_auto_is_tensorrt_with_a_gpu_then_rtx_then_nothing(installed, flavours, gpu, chosen):
    installed(*flavours, gpu=gpu)
    assert choose_flavour("auto") == chosen


def test_none_is_nothing_whatever_is_installed(installed):
    installed("tensorrt", "rtx", gpu=True)
    assert choose_flavour("none") is None


@pytest.mark.parametrize("flavour", ["tensorrt", "rtx"])
def test_a_flavour_asked_for_and_absent_is_an_error_that_says_how_to_get_it(installed, flavour):
    installed(gpu=True)
    with pytest.raises(ExportError, match=rf"is not installed; pip install .*\[{flavour}\]'"):
        choose_flavour(flavour)


def test_tensorrt_asked_for_without_a_gpu_points_to_rtx(installed):
    installed("tensorrt")
    with pytest.raises(ExportError, match="builder: needs an NVIDIA GPU; to build without a GPU, use engine='rtx'"):
        choose_flavour("tensorrt")


def test_an_unknown_engine_is_refused():
    with pytest.raises(ConfigError, match="'openvino' is not one of auto, tensorrt, rtx, none"):
        choose_flavour("openvino")


def test_without_cuda_bindings_auto_still_finds_rtx(monkeypatch):
    def find_gpu(source="GPU"):
        raise MissingExtraError(f"{source}: needs the package cuda-bindings")

    monkeypatch.setattr(to_tensorrt, "find_gpu", find_gpu)
    assert choose_flavour("auto") == "rtx"


def test_tensorrt_builds_only_for_the_gpu_at_hand(installed, tmp_path, onnx_file):
    installed("tensorrt", gpu=True)
    options = {"flavour": "tensorrt", "batch": BATCH, "compute_capabilities": [86]}
    with pytest.raises(ExportError, match=r"^compute_capabilities: 86 is not the local GPU, 89, .* use engine='rtx'"):
        build_plan(onnx_file("tiny"), tmp_path / "model.trt", metadata(), **options)


# On a GPU


@pytest.mark.gpu
@pytest.mark.parametrize("size", ["tiny", "paper"])
@pytest.mark.parametrize("flavour", ["rtx", "tensorrt"])
def test_a_plan_agrees_with_onnx_runtime_for_any_number_of_windows(tmp_path, onnx_file, size, flavour):
    if load_flavour(flavour) is None:
        pytest.skip(f"{flavour} is not installed")
    onnx_path, plan_path = onnx_file(size), tmp_path / "model.trt"
    build_plan(onnx_path, plan_path, metadata(), flavour=flavour, batch=BatchProfile(1, 4, 8))
    windows = np.random.default_rng(1).normal(size=(45, *shape(size))).astype(np.float32)
    with OnnxEngine(onnx_path) as reference:
        expected = reference.run(windows)
    for cuda_graph in (True, False):
        with PlanEngine(plan_path, cuda_graph=cuda_graph) as engine:
            for count in (1, 3, 8, 45, 45):
                for name, found in engine.run(windows[:count]).items():
                    np.testing.assert_allclose(found, expected[name][:count], rtol=1e-3, atol=1e-4, err_msg=name)


@pytest.mark.gpu
def test_timings_are_kept_and_used_by_the_next_build(tmp_path, onnx_file):
    if load_flavour("tensorrt") is None:
        pytest.skip("tensorrt is not installed")
    plan_path = tmp_path / "model.trt"
    for _ in range(2):
        build_plan(onnx_file("tiny"), plan_path, metadata(), flavour="tensorrt", batch=BATCH)
        assert (tmp_path / "model.trt.timing").stat().st_size
