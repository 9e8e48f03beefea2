"""One window through the score graph: against the published code, and against its own matrix products run bare.

    python -m benchmarks.inference_speed [--threads 2] [--batches 1 8 16] [--repeats 12] [--openvino]

The model has the paper's size (window 100, 25 features, 512 wide, 3 layers, random weights) and the published score.
Contestants take turns: the published code's way in eager PyTorch, the fp32 graph, the int8-dynamic graph, and the
floor: every matrix product of the fp32 graph, same shapes, same runtime and threads, with nothing between them. Times
are per window, by the clock and by CPU time, medians; other work on the machine disturbs CPU time less. The scores of
the first two are compared, and the products of the floor are those that the graph has. `--openvino` adds the same two
files run by OpenVINO (`pip install openvino`).
"""

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from at_infer.config import ScoreConfig
from at_infer.engines.ort import open_session
from benchmarks.models import FEATURES, checkpoint
from benchmarks.published import published_scores
from export.pipeline import ExportConfig, export_model
from training.model import AnomalyTransformer

Floats = NDArray[np.float32]
WINDOW = 100
PAUSE_S = 0.1  # threads of the contestant before go on spinning for a while, at the cost of the next one
TITLES = {
    "published": "published code, PyTorch",
    "fp32": "at-infer, fp32",
    "int8": "at-infer, int8-dynamic",
    "floor": "matrix products alone",
    "openvino fp32": "OpenVINO, fp32",
    "openvino int8": "OpenVINO, int8-dynamic",
}


def product_shapes(network: AnomalyTransformer) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Both sides of every matrix product of the score graph, per window; weights have two dimensions."""
    c = network.config
    n, d, h = c.window, c.width, c.heads
    layer = [
        ((n, d), (d, 3 * d + h)),  # Q, K, V and sigma
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


def by_openvino(path: Path, windows: Floats, threads: int) -> Callable[[], Any]:
    """The score of an exported file by OpenVINO's CPU plugin."""
    import openvino

    options = {"INFERENCE_NUM_THREADS": threads, "PERFORMANCE_HINT": "LATENCY"}
    model = openvino.Core().compile_model(str(path), "CPU", options)
    request = model.create_infer_request()
    return lambda: request.infer({0: windows})[model.output("score")]


def measure(folder: Path, batch: int, args: argparse.Namespace) -> dict[str, dict[str, float]]:
    """Milliseconds per window of every contestant at one batch size."""
    network = checkpoint(512, ScoreConfig(mode="published")).network()
    windows = np.random.default_rng(1).normal(size=(batch, WINDOW, FEATURES)).astype(np.float32)
    x = torch.from_numpy(windows)
    sessions = {name: open_session(folder / name / "model.onnx", threads=args.threads) for name in ("fp32", "int8")}
    contestants: dict[str, Callable[[], Any]] = {
        "published": lambda: published_scores(network, x),
        "fp32": lambda: sessions["fp32"].run(["score"], {"window": windows})[0],
        "int8": lambda: sessions["int8"].run(["score"], {"window": windows})[0],
        "floor": floor(network, batch, args.threads),
    }
    if args.openvino:
        for name in sessions:
            contestants[f"openvino {name}"] = by_openvino(folder / name / "model.onnx", windows, args.threads)
    clock: dict[str, list[float]] = {name: [] for name in contestants}
    cpu: dict[str, list[float]] = {name: [] for name in contestants}
    answers = {}
    for _ in range(args.repeats + 2):
        for name, run in contestants.items():
            time.sleep(PAUSE_S)
            begin, begin_cpu = time.perf_counter(), time.process_time()
            answers[name] = run()
            clock[name].append((time.perf_counter() - begin) / batch * 1e3)
            cpu[name].append((time.process_time() - begin_cpu) / batch * 1e3)
    for name in answers.keys() & {"fp32", "openvino fp32"}:
        np.testing.assert_allclose(answers[name], answers["published"], rtol=5e-2, atol=1e-4)
    return {
        name: {
            "clock_ms": statistics.median(clock[name][2:]),
            "best_ms": min(clock[name][2:]),
            "cpu_ms": statistics.median(cpu[name][2:]),
        }
        for name in contestants
    }


def main() -> None:
    """Run, print a table and one JSON line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 8, 16])
    parser.add_argument("--repeats", type=int, default=12)
    parser.add_argument("--openvino", action="store_true")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    results = {}
    with tempfile.TemporaryDirectory() as name:
        source = checkpoint(512, ScoreConfig(mode="published"))
        configs = {"fp32": ExportConfig(engine="none"), "int8": ExportConfig(engine="none", precision="int8-dynamic")}
        for folder, config in configs.items():
            Path(name, folder).mkdir()
            export_model(source, "0" * 64, Path(name, folder), config)
        check_products(Path(name, "fp32", "model.onnx"), source.network())
        for batch in args.batches:
            results[batch] = found = measure(Path(name), batch, args)
            print(f"batch {batch}, {args.threads} threads, per window")
            for key, times in found.items():
                print(
                    f"  {TITLES[key]:26}{times['clock_ms']:8.2f} ms{times['best_ms']:8.2f} ms at best"
                    f"{times['cpu_ms']:8.2f} ms of CPU{found['published']['cpu_ms'] / times['cpu_ms']:7.2f}x"
                )
            ratios = [found["fp32"][kind] / found["floor"][kind] for kind in ("clock_ms", "best_ms", "cpu_ms")]
            print("  fp32 against its products: {:.2f}x, {:.2f}x at best, {:.2f}x by CPU time".format(*ratios))
    print(json.dumps({"benchmark": "inference_speed", **vars(args), "results": results}))


if __name__ == "__main__":
    main()
