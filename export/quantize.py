"""int8: weights and activations of the large matrix products as 8-bit integers, the rest in float32."""

import logging
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnxruntime.quantization import (
    CalibrationDataReader,
    CalibrationMethod,
    QuantFormat,
    QuantType,
    quantize_dynamic,
    quantize_static,
)

from export.to_onnx import INPUT

CALIBRATION_BATCH = 16

# Biases of the products that may be quantised, as the exporter names them after the parameters. Attention
# products have no weights, and the products for scale, embedding and output stay in float32.
_QUANTISED = re.compile(r"network\.layers\.\d+\.(attention\.(project\.qkv|out)|feed_forward\.[02])\.bias")


def quantize_for_engines(model: onnx.ModelProto, windows: NDArray[np.float32]) -> onnx.ModelProto:
    """Static QDQ, symmetric, weights per channel, ranges calibrated on raw `windows` (B,N,F)."""

    def quantize(source: Path, target: Path) -> None:
        quantize_static(
            source,
            target,
            _Reader(windows),
            quant_format=QuantFormat.QDQ,
            op_types_to_quantize=["MatMul"],
            nodes_to_quantize=_products(model),
            per_channel=True,
            activation_type=QuantType.QInt8,
            weight_type=QuantType.QInt8,
            calibrate_method=CalibrationMethod.MinMax,
            extra_options={
                "ActivationSymmetric": True,  # TensorRT refuses a zero point
                "WeightSymmetric": True,
                "OpTypesToExcludeOutputQuantization": ["MatMul"],  # what follows is float32 anyway
            },
        )

    return _through_files(model, quantize)


def quantize_for_cpus(model: onnx.ModelProto) -> onnx.ModelProto:
    """Dynamic: activations get their range at run time, so nothing has to be calibrated."""

    def quantize(source: Path, target: Path) -> None:
        quantize_dynamic(
            source,
            target,
            op_types_to_quantize=["MatMul"],
            nodes_to_quantize=_products(model),
            per_channel=True,
            weight_type=QuantType.QInt8,
            reduce_range=True,  # 7-bit weights: without VNNI the CPU's 8-bit products overflow 16 bits
            extra_options={"WeightSymmetric": True},
        )

    return _through_files(model, quantize)


def _products(model: onnx.ModelProto) -> list[str]:
    """Names of the matrix products to quantise: those whose result gets one of the biases added."""
    makers = {output: node for node in model.graph.node for output in node.output}
    names = []
    for node in model.graph.node:
        if node.op_type == "Add" and any(_QUANTISED.fullmatch(name) for name in node.input):
            (product,) = [makers[name] for name in node.input if name in makers]
            assert product.op_type == "MatMul", f"{product.name} is a {product.op_type}"
            names.append(product.name)
    return names


def _through_files(model: onnx.ModelProto, quantize: Any) -> onnx.ModelProto:
    """The quantiser works on files and needs the shapes of intermediate values."""
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder, "float.onnx"), Path(folder, "int8.onnx")
        onnx.save(onnx.shape_inference.infer_shapes(model), source)
        logging.disable(logging.WARNING)  # it advises a pre-processing that renames the nodes chosen here
        try:
            quantize(source, target)
        finally:
            logging.disable(logging.NOTSET)
        quantised = onnx.load(target)
    del quantised.graph.value_info[:]
    quantised.producer_name, quantised.producer_version = model.producer_name, ""
    return quantised


class _Reader(CalibrationDataReader):  # type: ignore[misc]
    def __init__(self, windows: NDArray[np.float32]) -> None:
        batches = np.array_split(windows, -(-len(windows) // CALIBRATION_BATCH))
        self.batches: Iterator[NDArray[np.float32]] = iter(batches)

    def get_next(self) -> dict[str, NDArray[np.float32]] | None:
        """The next batch, or None after the last."""
        batch = next(self.batches, None)
        return None if batch is None else {INPUT: batch}
