"""The gate: passes what agrees, refuses what does not, and says where."""

from typing import get_args

import numpy as np
import onnx
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from at_infer.config import WINDOW_MODES, DiscrepancyConfig, Padding, ScoreConfig
from at_infer.errors import ExportError
from at_infer.evaluation.metrics.ranking import spearman
from export import parity
from export.graphs import OUTPUTS, AssociationsGraph, ScoreGraph, lower_precision
from export.parity_runs import extreme_windows
from export.quantize import quantize_for_cpus, quantize_for_engines
from export.tolerances import Tolerance, with_ties
from tests.checkpoints import PAPER, PLAIN, checkpoint, raw_windows


def graph(source, network=None) -> ScoreGraph:
    return ScoreGraph(network or source.network(), source.scaler, source.discrepancy, source.score, source.normal)


@pytest.fixture(scope="module")
def traced(real_trace) -> onnx.ModelProto:
    return real_trace(graph(checkpoint(score=PAPER, layers=2)), OUTPUTS)


def check(model, source=None, **options):
    source = source or checkpoint(score=PAPER, layers=2)
    options = {"precision": "fp32", "threshold": source.validation_of().threshold.value} | options
    return parity.check(model, graph(source), **options)


def edited(model: onnx.ModelProto) -> onnx.ModelProto:
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    return copy


@pytest.mark.slow
def test_a_faithful_graph_passes_on_every_kind_of_window(traced):
    source = checkpoint(score=PAPER, layers=2)
    figures = check(traced, real=raw_windows(10, source, seed=5))
    assert set(figures) == {"random", "real", "extreme", "scale floor"}
    assert all(
        case[output]["share_of_tolerance"] < 1 for case in figures.values() for output in case if output != "agreement"
    )
    assert figures["real"]["agreement"]["spearman"] == pytest.approx(1, abs=1e-5)
    assert figures["real"]["agreement"]["verdicts_changed"] == 0


@pytest.mark.parametrize(
    ("padding", "precision"), [*((padding, "fp32") for padding in get_args(Padding)), ("circular", "fp16")]
)
@pytest.mark.slow
def test_networks_of_either_padding_pass_and_are_not_mistaken_for_each_other(trace, padding, precision):
    source = checkpoint(score=PLAIN, padding=padding)
    network = source.network()
    if precision == "fp16":
        lower_precision(network, torch.float16)
    model = trace(graph(source, network), OUTPUTS)
    check(model, source, precision=precision)
    wrong = checkpoint(score=PLAIN, padding="circular" if padding == "replicate" else "replicate")
    with pytest.raises(ExportError, match="the difference may be"):
        check(model, wrong, precision=precision)


NORMALISED = [("reconstruction", "fp32"), ("centred", "fp32"), ("calibrated", "fp16")]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mode", "precision", "normalise"),
    [*((mode, "fp32", False) for mode in WINDOW_MODES), *((*case, True) for case in NORMALISED)],
)
def test_every_score_mode_passes(trace, mode, precision, normalise):
    source = checkpoint(score=ScoreConfig(mode=mode, normalise_errors=normalise))
    network = source.network()
    if precision == "fp16":
        lower_precision(network, torch.float16)
    check(trace(graph(source, network), OUTPUTS), source, precision=precision)


@pytest.mark.slow
def test_a_discrepancy_without_a_floor_passes(trace):
    source = checkpoint(score=PAPER, discrepancy=DiscrepancyConfig(head_rule="exact"))
    check(trace(graph(source), OUTPUTS), source)


@pytest.mark.slow
def test_the_associations_graph_passes(trace):
    source = checkpoint(score=PLAIN, layers=2)
    reference = AssociationsGraph(source.network(), source.scaler)
    figures = parity.check(trace(reference, reference.outputs), reference, precision="fp32", threshold=0.0)
    assert "prior_1" in figures["scale floor"]


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["fp16", "bf16", "int8", "int8-dynamic"])
def test_lower_precisions_pass_with_their_own_tolerances_and_fail_with_those_of_fp32(trace, precision):
    source = checkpoint(score=PAPER, layers=2)
    network = source.network()
    lower_precision(network, {"fp16": torch.float16, "bf16": torch.bfloat16}.get(precision, torch.float32))
    model = trace(graph(source, network), OUTPUTS)
    if precision == "int8":
        model = quantize_for_engines(model, raw_windows(32, source))
    elif precision == "int8-dynamic":
        model = quantize_for_cpus(model)
    figures = check(model, precision=precision)
    assert figures["random"]["agreement"]["spearman"] > 0.99
    with pytest.raises(ExportError, match="the difference may be"):
        check(model, precision="fp32")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["prior_1", "series_1", "sigma_1", "reconstruction"])
def test_associations_of_int8_that_are_wrong_are_refused(trace, name):
    """Tolerances are wide there, but not so wide that any probability, or any row, passes."""
    source = checkpoint(score=PLAIN, layers=2)
    reference = AssociationsGraph(source.network(), source.scaler)
    model = edited(trace(reference, reference.outputs))
    for node in model.graph.node:
        for names in (node.input, node.output):
            names[:] = ["right" if given == name else given for given in names]
    model.graph.node.append(onnx.helper.make_node("Sub", ["one", "right"], [name]))
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.float32(1), "one"))
    with pytest.raises(ExportError, match=rf"output {name}\["):
        parity.check(model, reference, precision="int8", threshold=0.0)


@pytest.mark.slow
def test_a_dropped_epsilon_is_refused(traced):
    model = edited(traced)
    for node in model.graph.node:
        if node.op_type == "Clip":
            node.op_type = "Identity"
            del node.input[1:]
    with pytest.raises(ExportError, match=r"output (score|discrepancy)\[.*is (inf|nan)"):
        check(model)


@pytest.mark.slow
def test_a_changed_weight_is_refused_and_the_worst_element_named(traced):
    model = edited(traced)
    bias = next(t for t in model.graph.initializer if t.name == "network.projection.bias")
    bias.CopyFrom(onnx.numpy_helper.from_array(onnx.numpy_helper.to_array(bias) + np.float32([0, 0.01, 0]), bias.name))
    with pytest.raises(ExportError, match=r"output \w+\[\d+, \d+.*\] is .* where PyTorch says"):
        check(model)


@pytest.mark.slow
def test_a_missing_layer_average_is_refused(traced):
    model = edited(traced)
    scale = next(t for t in model.graph.initializer if t.name == "scale.deviations")
    scale.CopyFrom(onnx.numpy_helper.from_array(onnx.numpy_helper.to_array(scale) * np.float32(1.01), scale.name))
    with pytest.raises(ExportError, match="parity"):
        check(model)


@pytest.mark.slow
def test_tolerances_can_be_given(traced):
    with pytest.raises(ExportError, match="the difference may be"):
        check(traced, tolerance=Tolerance(0.0, 1e-12))


@pytest.mark.slow
def test_extreme_windows_hold_zeros_constants_and_spikes():
    source = checkpoint(score=PLAIN, layers=2)
    windows = extreme_windows(
        source.model, np.asarray(source.scaler.mean, np.float32), np.asarray(source.scaler.scale, np.float32)
    )
    assert np.isfinite(windows).all()
    assert (windows == 0).all(axis=(1, 2)).any()
    assert (np.ptp(windows, axis=1) == 0).all(axis=1).sum() >= 3
    assert np.abs((windows - source.scaler.mean) / source.scaler.scale).max() > 9e5


def test_near_ties_of_alike_rows_may_be_broken_either_way():
    source = checkpoint(padding="replicate")
    reference = AssociationsGraph(source.network(), source.scaler)
    mean, scale = (np.asarray(v, np.float32) for v in (source.scaler.mean, source.scaler.scale))
    alike = np.stack([np.broadcast_to(mean + size * scale, (source.model.window, len(mean))) for size in (1, 1e6)])
    allowed = {"series_0": np.zeros((2, source.model.heads, source.model.window, source.model.window))}
    normal, huge = with_ties(reference, alike.astype(np.float32), allowed)["series_0"].max(axis=(1, 2, 3))
    assert normal < 1e-4 < 0.1 < huge


@given(st.lists(st.tuples(st.floats(-1e3, 1e3, width=32), st.floats(-1e3, 1e3, width=32)), min_size=3, max_size=40))
def test_spearman_equals_scipy(pairs):
    a, b = (np.array(side, np.float32) for side in zip(*pairs, strict=True))
    a, b = (np.where(np.abs(v) < 1e-30, 0, v) for v in (a, b))
    if np.ptp(a) == 0 or np.ptp(b) == 0:
        return
    assert spearman(a, b) == pytest.approx(stats.spearmanr(a, b).statistic, abs=1e-9)
