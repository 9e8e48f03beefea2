"""Trace a graph to an ONNX model that is the same bytes for the same weights and options."""

import hashlib
import logging
import warnings
from collections.abc import Sequence
from pathlib import Path

import onnx
import torch

from at_infer.errors import OutputError
from at_infer.models.copies import sealed
from at_infer.models.metadata import Metadata
from export.graphs import AssociationsGraph, ScoreGraph

OPSET = 20  # the first with a native Gelu
IR_VERSION = 9  # of the release that brought opset 20; older servers refuse a newer one, whatever the opset
INPUT = "window"


def trace(graph: ScoreGraph | AssociationsGraph, outputs: Sequence[str]) -> onnx.ModelProto:
    """The graph as ONNX with a dynamic batch, free of anything that depends on this machine."""
    config = graph.network.config
    example = torch.zeros(2, config.window, config.features)
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)  # it reports that torchvision is absent
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # deprecations inside the exporter, nothing a user can act on
            program = torch.onnx.export(
                graph.eval(),
                (example,),
                input_names=[INPUT],
                output_names=list(outputs),
                dynamic_shapes={INPUT: {0: torch.export.Dim("batch")}},
                opset_version=OPSET,
                dynamo=True,
                external_data=False,
                verbose=False,
            )
    finally:
        logger.setLevel(level)
    assert program is not None
    model: onnx.ModelProto = program.model_proto
    _strip(model)
    return model


def finish(model: onnx.ModelProto, metadata: Metadata) -> onnx.ModelProto:
    """A copy with metadata inside, checked by onnx."""
    finished = onnx.ModelProto()
    finished.CopyFrom(model)
    finished.ir_version = IR_VERSION  # quantisation sets its own
    onnx.helper.set_model_props(finished, dict(sorted(metadata.to_properties().items())))
    onnx.checker.check_model(finished, full_check=True)
    return finished


def write(model: onnx.ModelProto, path: Path) -> str:
    """Write the file and return its sha256."""
    content = sealed(model)
    try:
        path.write_bytes(content)
    except OSError as error:
        raise OutputError(f"{path}: could not be written ({error.strerror or error})") from None
    return hashlib.sha256(content).hexdigest()


def _strip(model: onnx.ModelProto) -> None:
    """Remove stack traces with machine paths, and shapes of intermediate values that runtimes infer anyway."""
    model.producer_name, model.producer_version = "at-infer", ""
    model.ir_version = IR_VERSION
    model.doc_string = model.graph.doc_string = ""
    del model.metadata_props[:]
    del model.graph.metadata_props[:]
    del model.graph.value_info[:]
    model.graph.name = "anomaly_transformer"
    for part in (model.graph.node, model.graph.initializer, model.graph.input, model.graph.output):
        for item in part:
            del item.metadata_props[:]
            item.doc_string = ""
