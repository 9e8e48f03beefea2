"""Copies of a graph for the parity check only: with the scale at its floor, or with products that a CPU can do."""

import copy

import onnx
import torch
from onnx import TensorProto, helper, numpy_helper

from export.graphs import AssociationsGraph, ScoreGraph
from training.model import Layer

SCALE_FLOOR_BIAS = -1e3  # drives sigma to its floor, where all of the prior but its diagonal underflows


def at_scale_floor(
    model: onnx.ModelProto, reference: ScoreGraph | AssociationsGraph
) -> tuple[onnx.ModelProto, ScoreGraph | AssociationsGraph]:
    """Copies of both whose scale is at its floor: the same graph, only the bias of the scale differs."""
    reference = copy.deepcopy(reference)
    heads = reference.network.config.heads
    for layer in reference.network.layers:
        assert isinstance(layer, Layer)
        with torch.no_grad():
            layer.attention.project.bias[-heads:] = SCALE_FLOOR_BIAS
    floor = onnx.ModelProto()
    floor.CopyFrom(model)
    for tensor in floor.graph.initializer:
        if tensor.name.endswith(("attention.project.bias", "attention.project.sigma.bias")):
            bias = numpy_helper.to_array(tensor).copy()
            bias[-heads:] = SCALE_FLOOR_BIAS
            tensor.CopyFrom(numpy_helper.from_array(bias, tensor.name))
    return floor, reference


def without_bfloat16(model: onnx.ModelProto) -> onnx.ModelProto:
    """ONNX Runtime has no bfloat16 product on CPUs: round to bfloat16 as the graph says, multiply in float32."""
    types = {tensor.name: tensor.data_type for tensor in model.graph.initializer}
    products = [n for n in model.graph.node if n.op_type == "MatMul" and types.get(n.input[1]) == TensorProto.BFLOAT16]
    if not products:
        return model
    widened = onnx.ModelProto()
    widened.CopyFrom(model)
    names = {node.name for node in products}
    nodes: list[onnx.NodeProto] = []
    for node in widened.graph.node:
        if node.name not in names:
            nodes.append(node)
            continue
        inputs = [f"{name}_as_float_for_{node.name}" for name in node.input]
        for name, wide in zip(node.input, inputs, strict=True):
            nodes.append(helper.make_node("Cast", [name], [wide], to=TensorProto.FLOAT))
        product = f"{node.output[0]}_in_float"
        nodes.append(helper.make_node("MatMul", inputs, [product]))
        nodes.append(helper.make_node("Cast", [product], [node.output[0]], to=TensorProto.BFLOAT16))
    del widened.graph.node[:]
    widened.graph.node.extend(nodes)
    return widened
