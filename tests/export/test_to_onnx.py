"""Traced graphs: names, shapes, reproducible bytes, and numpy's criterion beside them."""

from itertools import product
from typing import get_args

import numpy as np
import onnx
import pytest
import torch

from at_infer.config import WINDOW_MODES, DiscrepancyConfig, Distance, ScoreConfig
from at_infer.engines.ort import open_session
from at_infer.models.criterion import error_and_discrepancy, fusion_rows, score_outputs
from export.graphs import OUTPUTS, AssociationsGraph, PooledMean, ScoreGraph, lower_precision
from export.parity_runs import run_onnx, run_reference
from export.to_onnx import IR_VERSION, OPSET, finish
from tests.checkpoints import FEATURES, PAPER, PLAIN, WINDOW, checkpoint, raw_windows
from tests.exported import metadata
from training.checkpoint import Checkpoint
from training.views import local_mean


def score_graph(source: Checkpoint, outputs=OUTPUTS) -> ScoreGraph:
    return ScoreGraph(source.network(), source.scaler, source.discrepancy, source.score, source.normal, outputs)


def shapes(values) -> dict[str, list[str | int]]:
    return {v.name: [d.dim_param or d.dim_value for d in v.type.tensor_type.shape.dim] for v in values}


@pytest.fixture(scope="module")
def traced(real_trace) -> onnx.ModelProto:
    return real_trace(score_graph(checkpoint(score=PAPER, layers=2)), OUTPUTS)  # test_parity traces the same


@pytest.fixture(scope="module")
def associations(trace) -> onnx.ModelProto:
    graph = AssociationsGraph(checkpoint(score=PLAIN, layers=2).network(), checkpoint().scaler)
    return trace(graph, graph.outputs)


@pytest.mark.slow
def test_opset_and_ir_version_are_pinned_together(traced):
    finished = finish(traced, metadata())
    assert finished.ir_version == IR_VERSION
    assert [(one.domain, one.version) for one in finished.opset_import] == [("", OPSET)]
    # The table of onnx: releases by IR version and opset. Both are of the same release, the oldest that has Gelu.
    assert [row[1] for row in onnx.helper.VERSION_TABLE if row[2] == OPSET] == [IR_VERSION]


@pytest.mark.slow
def test_the_score_graph_has_stable_names_and_a_dynamic_batch(traced):
    assert shapes(traced.graph.input) == {"window": ["batch", WINDOW, FEATURES]}
    assert shapes(traced.graph.output) == {
        "score": ["batch", WINDOW],
        "error": ["batch", WINDOW],
        "discrepancy": ["batch", WINDOW],
        "reconstruction": ["batch", WINDOW, FEATURES],
    }
    assert [(o.domain, o.version) for o in traced.opset_import] == [("", 20)]


@pytest.mark.slow
def test_the_associations_graph_returns_every_layer(associations):
    square, row = ["batch", 2, WINDOW, WINDOW], ["batch", 2, WINDOW]
    expected = {"reconstruction": ["batch", WINDOW, FEATURES]}
    for i in range(2):
        expected |= {f"prior_{i}": square, f"series_{i}": square, f"sigma_{i}": row}
    assert shapes(associations.graph.output) == expected


@pytest.mark.slow
def test_nothing_of_this_machine_is_left_inside(traced):
    content = traced.SerializeToString()
    for text in (b"site-packages", b".py", b"stack_trace", b"/home", b"/work", b"/root"):
        assert text not in content


@pytest.mark.slow
def test_weights_are_inside_and_the_checker_is_content(traced):
    assert all(tensor.data_location == onnx.TensorProto.DEFAULT for tensor in traced.graph.initializer)
    finished = finish(traced, metadata())
    assert {prop.key for prop in finished.metadata_props} == set(metadata().to_properties())
    assert not traced.metadata_props


@pytest.mark.slow
def test_pruning_to_the_score_drops_what_it_does_not_need(trace):
    whole = trace(score_graph(checkpoint(score=PLAIN, layers=2)), OUTPUTS)
    pruned = trace(score_graph(checkpoint(score=PLAIN, layers=2), ["score"]), ["score"])
    assert [output.name for output in pruned.graph.output] == ["score"]
    assert len(pruned.graph.node) < len(whole.graph.node)
    assert "Log" not in {node.op_type for node in pruned.graph.node}
    windows = raw_windows(5, checkpoint(score=PLAIN, layers=2))
    np.testing.assert_allclose(run_onnx(pruned, windows)["score"], run_onnx(whole, windows)["score"], rtol=1e-5)


@pytest.mark.parametrize("mode", WINDOW_MODES)
@pytest.mark.parametrize("normalise", [False, True], ids=["as it is", "normalised"])
@pytest.mark.slow
def test_every_score_mode_equals_its_numpy_twin(mode, normalise):
    """Of the graph before it is traced: test_parity compares it with the traced one."""
    source = checkpoint(score=ScoreConfig(mode=mode, normalise_errors=normalise))
    windows = raw_windows(6, source)
    found = run_reference(score_graph(source), windows)
    known = metadata(model=source.model, scaler=source.scaler, score=source.score, normal=source.normal)
    twin = score_outputs(windows, {k: found[k] for k in ("error", "discrepancy")}, known)
    np.testing.assert_allclose(found["score"], twin, rtol=1e-4, atol=1e-7)
    from_reconstruction = score_outputs(windows, {k: found[k] for k in ("reconstruction", "discrepancy")}, known)
    np.testing.assert_allclose(found["score"], from_reconstruction, rtol=1e-4, atol=1e-5)


def test_the_shape_of_the_graph_equals_its_numpy_twin():
    source = checkpoint()
    windows = raw_windows(6, source)
    found = run_reference(score_graph(source, None), windows)
    assert list(found) == ["reconstruction", "shape"]
    twin = fusion_rows(windows, {"reconstruction": found["reconstruction"]}, source.scaler)[..., -FEATURES:]
    np.testing.assert_allclose(found["shape"], twin, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("head_rule", "distance"), [*product(("paper", "published"), get_args(Distance)), ("exact", "kl")]
)
def test_numpy_turns_associations_into_the_fused_graphs_answers(associations, distance, head_rule):
    discrepancy = DiscrepancyConfig(distance=distance, head_rule=head_rule)
    source = checkpoint(score=PLAIN, discrepancy=discrepancy, layers=2)
    windows = raw_windows(6, source)
    fused = run_reference(score_graph(source), windows)
    known = metadata(model=source.model, scaler=source.scaler, discrepancy=discrepancy)
    error, found = error_and_discrepancy(windows, run_onnx(associations, windows), known)
    np.testing.assert_allclose(error, fused["error"], rtol=1e-5, atol=1e-5)
    # Without a floor AssDis grows as 1 / sigma^2, and sigma is a difference: a small one has few digits in float32.
    np.testing.assert_allclose(found, fused["discrepancy"], rtol=1e-3 if head_rule == "exact" else 1e-5, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("dtype", "every_product"), [(torch.float16, False), (torch.float16, True), (torch.bfloat16, False)]
)
def test_lower_precision_is_written_into_the_types_and_spares_the_rest(trace, dtype, every_product):
    source = checkpoint(score=PAPER, layers=2)
    network = source.network()
    lower_precision(network, dtype, every_product=every_product)
    model = trace(ScoreGraph(network, source.scaler, source.discrepancy, source.score, source.normal), OUTPUTS)
    low = (
        onnx.helper.np_dtype_to_tensor_dtype(np.dtype("float16"))
        if dtype == torch.float16
        else onnx.TensorProto.BFLOAT16
    )
    inferred = onnx.shape_inference.infer_shapes(model)
    types = {v.name: v.type.tensor_type.elem_type for v in inferred.graph.value_info}
    types |= {t.name: t.data_type for t in inferred.graph.initializer}
    products = [node for node in inferred.graph.node if node.op_type == "MatMul"]
    lowered = [node for node in products if types[node.input[1]] == low]
    # Per layer: Q, K and V as one, output, two of the feed-forward part; the rest is scale, attention, both ends.
    assert len(lowered) == (len(products) if every_product else 2 * 4)
    for node in inferred.graph.node:
        if node.op_type in {"Softmax", "Log", "LayerNormalization", "Pow", "ReduceMean", "Exp"}:
            assert types.get(node.output[0], onnx.TensorProto.FLOAT) == onnx.TensorProto.FLOAT, node.op_type
    expected = run_reference(score_graph(source), raw_windows(4, source))
    found = run_onnx(model, raw_windows(4, source))
    np.testing.assert_allclose(found["reconstruction"], expected["reconstruction"], atol=0.05)


@pytest.mark.slow
def test_huge_batches_and_single_windows_agree(traced):
    windows = raw_windows(65, checkpoint(score=PAPER, layers=2))
    session = open_session(traced.SerializeToString())
    together = session.run(["score"], {"window": windows})[0]
    alone = np.concatenate([session.run(["score"], {"window": w[None]})[0] for w in windows])
    np.testing.assert_allclose(together, alone, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("window", [1, 2, 7, 100])
def test_both_ways_to_the_local_mean_agree(window):
    x = 1e3 * torch.randn(3, window, 4)
    torch.testing.assert_close(PooledMean(x.shape[1])(x), local_mean(x), rtol=1e-5, atol=1e-3)
