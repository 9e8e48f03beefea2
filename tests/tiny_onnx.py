"""The smallest ONNX file that carries metadata."""

from pathlib import Path

import onnx
from onnx import TensorProto, helper

from at_infer.models.metadata import Metadata


def write_model(path: Path, metadata: Metadata | None) -> Path:
    """A graph that copies its input, with what an export would have recorded."""
    sizes = [8, 3] if metadata is None else [metadata.model.window, metadata.model.features]
    names = ("window", "reconstruction")
    tensors = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", *sizes]) for name in names]
    graph = helper.make_graph([helper.make_node("Identity", names[:1], names[1:])], "g", tensors[:1], tensors[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    helper.set_model_props(model, {"author": "someone"} if metadata is None else metadata.to_properties())
    onnx.save(model, path)
    return path
