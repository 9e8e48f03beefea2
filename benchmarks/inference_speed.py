"""One window through the score graph: against the published code, and against its own matrix products run bare.

    python -m benchmarks.inference_speed [--threads 2] [--batches 1 8] [--repeats 20] [--openvino]

The model has the paper's size (window 100, 25 features, 512 wide, 3 layers, random weights). Contestants take turns:
the published code's way in eager PyTorch, the fp32 and the int8-dynamic graph with the published score, the fp32 graph
as `train` and `export` make it when nothing is asked for (heads compared as in the paper, score `centred`), and the
floor: every matrix product of the fp32 graph, same shapes, same runtime and threads, with nothing between them. A turn
is a run that is not timed, then as many as take 8 windows. Ratios are those within a round, so that other work on the
machine disturbs them less. The scores of the first two are compared, and the products of the floor are those that the
graph has. `--openvino` adds two of the files run by OpenVINO (`pip install openvino`).
"""

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from at_infer.config import DiscrepancyConfig, ScoreConfig
from at_infer.engines.ort import open_session
from benchmarks.models import FEATURES, checkpoint
from benchmarks.published import published_scores
from export.config import ExportConfig
from export.pipeline import export_model
from training.model import AnomalyTransformer

Floats = NDArray[np.float32]
WINDOW = 100
PAUSE_S = 0.1  # threads of the contestant before go on spinning for a while, at the cost of the next one
TURN = 8  # windows
TITLES = {
    "published": "published code, PyTorch",
    "fp32": "at-infer, fp32",
    "int8": "at-infer, int8-dynamic",
    "default": "at-infer, default, fp32",
    "floor": "matrix products alone",
    "openvino fp32": "OpenVINO, fp32",
    "openvino int8": "OpenVINO, int8-dynamic",
}
CONFIGS = {
    "fp32": ExportConfig(engine="none"),
    "int8": ExportConfig(engine="none", precision="int8-dynamic"),
    "default": ExportConfig(engine="none"),
}


def product_shapes(network: AnomalyTransformer) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Both sides of every matrix product of the score graph, per window; weights have two dimensions."""
    c = network.config
    n, d, h = c.window, c.width, c.heads
    layer = [
        *(3 * [((n, d), (d, d))]),  # Q, K, V
        ((n, d), (d, h)),  # sigma
        ((h, n, d // h), (h, d // h, n)),  # Q K^T
        ((h, n, n), (h, n, d // h)),  # S V
        ((n, d), (d, d)),
        ((n, d), (d, c.feed_forward)),
        ((n, c.feed_forward), (c.feed_forward, d)),
    ]
    return [((n, 3 * c.features), (3 * c.features, d)), *(layer * c.layers), ((n, d), (d, c.features))]


def floor(network: AnomalyTransformer, batch: int, threads: int) -> Callable[[], Any]:
    """The products as one ONNX graph; each reads inputs of its own, so nothing has to be moved between them."""
    rng = np.random.default_rng(0)
    nodes, inputs, outputs, weights, feed = [], [], [], [], {}
    for i, (left, right) in enumerate(product_shapes(network)):
        sides = {f"a{i}": (batch, *left), f"b{i}": right if len(right) == 2 else (batch, *right)}
        for name, shape in sides.items():
            values = rng.normal(size=shape).astype(np.float32)
            if len(shape) == 2:
                weights.append(numpy_helper.from_array(values, name))
            else:
                feed[name] = values
                inputs.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, shape))
        nodes.append(helper.make_node("MatMul", list(sides), [f"c{i}"]))
        outputs.append(helper.make_tensor_value_info(f"c{i}", TensorProto.FLOAT, None))
    graph = helper.make_graph(nodes, "products", inputs, outputs, weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    session = open_session(model.SerializeToString(), threads=threads)
    return lambda: session.run(None, feed)


def check_products(path: Path, network: AnomalyTransformer) -> None:
    """The floor has as many products with weights of the same sizes as the graph."""
    graph = onnx.load(path).graph
    weights = {tensor.name: list(tensor.dims) for tensor in graph.initializer}
    products = [node for node in graph.node if node.op_type in ("MatMul", "Gemm")]
    found = sorted(int(np.prod(weights[name])) for node in products for name in node.input if name in weights)
    shapes = product_shapes(network)
    assert len(products) == len(shapes), (len(products), len(shapes))
    assert found == sorted(int(np.prod(right)) for _, right in shapes if len(right) == 2)


def by_onnx_runtime(path: Path, windows: Floats, threads: int) -> Callable[[], Any]:
    """The score of an exported file as `at-infer score` gets it."""
    session = open_session(path, threads=threads)
    return lambda: session.run(["score"], {"window": windows})[0]


def by_openvino(path: Path, windows: Floats, threads: int) -> Callable[[], Any]:
    """The score of an exported file by OpenVINO's CPU plugin."""
    import openvino

    options = {"INFERENCE_NUM_THREADS": threads, "PERFORMANCE_HINT": "LATENCY"}
    model = openvino.Core().compile_model(str(path), "CPU", options)
    request = model.create_infer_request()
    return lambda: request.infer({0: windows})[model.output("score")]


def contestants(folder: Path, batch: int, args: argparse.Namespace) -> dict[str, Callable[[], Any]]:
    """Each scores the same batch of windows."""
    network = checkpoint(512, ScoreConfig(mode="published")).network()
    windows = np.random.default_rng(1).normal(size=(batch, WINDOW, FEATURES)).astype(np.float32)
    x = torch.from_numpy(windows)
    found: dict[str, Callable[[], Any]] = {"published": lambda: published_scores(network, x)}
    for name in CONFIGS:
        found[name] = by_onnx_runtime(folder / name / "model.onnx", windows, args.threads)
    found["floor"] = floor(network, batch, args.threads)
    if args.openvino:
        for name in ("fp32", "int8"):
            found[f"openvino {name}"] = by_openvino(folder / name / "model.onnx", windows, args.threads)
    for name in found.keys() & {"fp32", "openvino fp32"}:
        np.testing.assert_allclose(found[name](), found["published"](), rtol=5e-2, atol=1e-4)
    return found


def measure(folder: Path, args: argparse.Namespace) -> dict[int, dict[str, dict[str, float]]]:
    """Milliseconds per window of every contestant at every batch size; ratios are medians of those within a round."""
    of_batch = {batch: contestants(folder, batch, args) for batch in args.batches}
    taken: dict[tuple[int, str], list[float]] = {(b, name): [] for b, all_of in of_batch.items() for name in all_of}
    for _ in range(args.repeats):
        for (batch, name), times in taken.items():
            run, runs = of_batch[batch][name], max(1, TURN // batch)
            time.sleep(PAUSE_S)
            run()
            begin = time.perf_counter()
            for _ in range(runs):
                run()
            times.append((time.perf_counter() - begin) / runs / batch * 1e3)

    def ratio(over: tuple[int, str], under: tuple[int, str]) -> float:
        return statistics.median(a / b for a, b in zip(taken[over], taken[under], strict=True))

    def best(name: str) -> tuple[int, str]:
        return min(((batch, name) for batch in args.batches), key=lambda key: statistics.median(taken[key]))

    return {
        batch: {
            name: {
                "median_ms": statistics.median(taken[batch, name]),
                "least_ms": min(taken[batch, name]),
                "times_faster_than_published": ratio((batch, "published"), (batch, name)),
                "times_its_products": ratio((batch, name), (batch, "floor")),
                "times_its_best_batch": ratio((batch, name), best(name)),
            }
            for name in of_batch[batch]
        }
        for batch in args.batches
    }


def main() -> None:
    """Run, print a table and one JSON line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 8])
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--openvino", action="store_true")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    with tempfile.TemporaryDirectory() as name:
        source = checkpoint(512, ScoreConfig(mode="published"))
        unasked = replace(source, discrepancy=DiscrepancyConfig(), score=ScoreConfig(mode="centred"))
        for folder, config in CONFIGS.items():
            Path(name, folder).mkdir()
            export_model(unasked if folder == "default" else source, "0" * 64, Path(name, folder), config)
        check_products(Path(name, "fp32", "model.onnx"), source.network())
        results = measure(Path(name), args)
    print(f"{args.threads} threads, per window     batch   median    least  published/it  it/products  it/best batch")
    for batch, found in results.items():
        for key, times in found.items():
            median, least, published, products, best = times.values()
            print(f"{TITLES[key]:26}{batch:6}{median:9.2f}{least:9.2f}{published:13.2f}x{products:12.2f}x{best:14.2f}x")
    print(json.dumps({"benchmark": "inference_speed", **vars(args), "results": results}))


if __name__ == "__main__":
    main()
