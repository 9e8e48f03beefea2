"""What scoring needs on paper, what devices offer on paper, and how many of them a million series take.

    python -m benchmarks.capacity                 # measures this CPU; the last line is what benchmarks/results/ keeps
    python -m benchmarks.capacity --write docs/capacity.md benchmarks/results/capacity.json

The second form writes the document from kept results. A prediction is a roofline: the slower of all operations at the
peak of the units that do them, and all bytes at the bandwidth of the memory. For the CPU the peaks are measured, with
bare matrix products of the model's largest shape, in turns with the model itself; that shows what such a prediction
is worth.
"""

import argparse
import json
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from at_infer.config import PRESETS, ModelConfig
from at_infer.engines import open_engine
from benchmarks.arithmetic import Precision, int8_operations, moved_bytes, other_operations, product_operations

PAPER = replace(PRESETS["paper"].model, features=25)
BATCH = 32
CPU_BATCH = 8
CPU_PRECISIONS: tuple[tuple[Precision, Literal["fp32", "int8-dynamic"]], ...] = (
    ("fp32", "fp32"),
    ("int8", "int8-dynamic"),
)


@dataclass(frozen=True, slots=True)
class Device:
    """Peaks without sparsity, in 1e12 operations and 1e9 bytes per second."""

    name: str
    fp32: float
    fp16: float
    """Also bf16; sums in fp32, as TensorRT does by default."""
    int8: float
    gb_per_s: float
    watts: int
    source: str

    def peak(self, precision: Precision) -> float:
        """Of products in a precision, in operations per second."""
        return 1e12 * {"fp32": self.fp32, "fp16": self.fp16, "bf16": self.fp16, "int8": self.int8}[precision]


# Tensor cores are quoted with sparsity, which doubles them; these are halved where the source does so.
DEVICES = (
    Device("Jetson Orin Nano 8 GB (Super)", 2.1, 17, 33, 102, 25, "NVIDIA, Jetson Orin Nano Super data sheet"),
    Device("Jetson AGX Orin 64 GB", 5.3, 42.5, 85, 204.8, 60, "NVIDIA, Jetson AGX Orin technical brief; GPU only"),
    Device("GeForce RTX 4060", 15.1, 30.2, 121, 272, 115, "NVIDIA, RTX 4060 product page and Ada white paper"),
    Device("L4", 30.3, 121, 242.5, 300, 72, "NVIDIA, L4 data sheet"),
    Device("H100 SXM", 67, 989, 1979, 3350, 700, "NVIDIA, H100 data sheet"),
)


@dataclass(frozen=True, slots=True)
class Prediction:
    """Windows per second by either limit."""

    by_operations: float
    by_bytes: float

    @property
    def windows_per_s(self) -> float:
        """The lower of both."""
        return min(self.by_operations, self.by_bytes)

    @property
    def limit(self) -> str:
        """Which of both it is."""
        return "operations" if self.by_operations <= self.by_bytes else "memory"


def predict(device: Device, precision: Precision, model: ModelConfig = PAPER, batch: int = BATCH) -> Prediction:
    """The roofline. Products that int8 leaves in float, and all that is no product, run at the peak of fp32."""
    low = int8_operations(model) if precision == "int8" else product_operations(model)
    rest = product_operations(model) - low + other_operations(model)
    seconds = low / device.peak(precision) + rest / device.peak("fp32")
    return Prediction(1 / seconds, 1e9 * device.gb_per_s / moved_bytes(model, precision, batch))


def cpu_device(measured: dict[str, Any]) -> Device:
    """This CPU, with the peaks that were measured."""
    return Device(
        measured["cpu"],
        fp32=measured["fp32_gflops"] / 1e3,
        fp16=0,
        int8=measured["int8_gops"] / 1e3,
        gb_per_s=measured["gb_per_s"],
        watts=0,
        source="measured",
    )


def measure(rounds: int, threads: int, models: Path | None) -> dict[str, Any]:
    """Bare products, a bare copy and the model itself, in turns; by CPU time, which other work disturbs least."""
    from benchmarks.cost_growth import exported

    rows, width = CPU_BATCH * PAPER.window, PAPER.width
    rng = np.random.default_rng(0)
    windows = rng.normal(size=(CPU_BATCH, PAPER.window, PAPER.features)).astype(np.float32)
    source = np.ones(1 << 26, np.float32)
    target = np.empty_like(source)
    with tempfile.TemporaryDirectory() as name:
        folder = models or Path(name)
        engines = {
            precision: open_engine(exported(PAPER, folder, precision), threads=threads)
            for _, precision in CPU_PRECISIONS
        }
        runs: dict[str, Callable[[], object]] = {
            "fp32 product": bare_product(rows, width, np.float32, threads),
            "int8 product": bare_product(rows, width, np.uint8, threads),
            "copy": lambda: np.copyto(target, source),
            "fp32": lambda: engines["fp32"].run(windows),
            "int8-dynamic": lambda: engines["int8-dynamic"].run(windows),
        }
        seconds: dict[str, list[float]] = {name: [] for name in runs}
        for number in range(rounds + 2):
            for name, run in runs.items():
                begin = time.process_time()
                run()
                if number >= 2:
                    seconds[name].append(time.process_time() - begin)
    fastest = {name: min(times) for name, times in seconds.items()}  # other work on the machine only ever adds
    operations = PRODUCTS * 2 * rows * width * width
    return {
        "cpu": cpu_name(),
        "threads": threads,
        "fp32_gflops": round(operations / fastest["fp32 product"] / 1e9, 1),
        "int8_gops": round(operations / fastest["int8 product"] / 1e9, 1),
        "gb_per_s": round(2 * source.nbytes / fastest["copy"] / 1e9, 1),
        "windows_per_s": {name: round(CPU_BATCH / fastest[name], 1) for name in engines},
    }


PRODUCTS = 6  # in a row, as in one layer: the time of one call is then small beside the work


def bare_product(rows: int, width: int, kind: type, threads: int) -> Callable[[], object]:
    """Products of one layer's shape with constant weights, by ONNX Runtime, and nothing else."""
    import onnx
    import onnxruntime as ort
    from onnx import TensorProto, helper, numpy_helper

    rng = np.random.default_rng(0)
    integers = kind is np.uint8
    weights = rng.integers(0, 255, (width, width)).astype(np.uint8) if integers else rng.normal(size=(width, width))
    element, result = (TensorProto.UINT8, TensorProto.INT32) if integers else (TensorProto.FLOAT, TensorProto.FLOAT)
    operator = "MatMulInteger" if integers else "MatMul"
    graph = helper.make_graph(
        [helper.make_node(operator, ["x", f"w{i}"], [f"y{i}"]) for i in range(PRODUCTS)],
        "products",
        [helper.make_tensor_value_info("x", element, [rows, width])],
        [helper.make_tensor_value_info(f"y{i}", result, [rows, width]) for i in range(PRODUCTS)],
        [numpy_helper.from_array(weights.astype(kind) + kind(i), f"w{i}") for i in range(PRODUCTS)],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    onnx.checker.check_model(model)
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    x = rng.normal(size=(rows, width)).astype(kind) if not integers else rng.integers(0, 255, (rows, width), np.uint8)
    return lambda: session.run(None, {"x": x})


def cpu_name() -> str:
    """As the system calls it."""
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return "CPU"


def main() -> None:
    """Measure, or write the document."""
    from benchmarks.capacity_page import page

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("result", type=Path, nargs="?", help="kept result, for --write")
    parser.add_argument("--write", type=Path, help="write the document from a kept result instead of measuring")
    parser.add_argument("--rounds", type=int, default=25)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--models", type=Path, help="keep exported models here")
    args = parser.parse_args()
    if args.write is not None:
        if args.result is None:
            parser.error("--write needs a kept result, such as benchmarks/results/capacity.json")
        others = [args.result.with_name(f"{name}.json") for name in ("cost_growth", "default_speed")]
        results = [json.loads(path.read_text(encoding="utf-8")) for path in (args.result, *others)]
        args.write.write_text(page(*results), encoding="utf-8")
        return
    measured = measure(args.rounds, args.threads, args.models)
    device = cpu_device(measured)
    print(
        f"{device.name}, threads: {args.threads}, CPU time: {measured['fp32_gflops']:.0f} GFLOP/s in bare products, "
        f"{measured['int8_gops']:.0f} in int8, {measured['gb_per_s']:.0f} GB/s"
    )
    for precision, key in CPU_PRECISIONS:
        expected = predict(device, precision, batch=CPU_BATCH).windows_per_s
        found = measured["windows_per_s"][key]
        print(f"{key:14}{expected:8.0f} windows/s predicted{found:8.0f} measured{found / expected:8.0%}")
    print(json.dumps({"benchmark": "capacity", "rounds": args.rounds, **measured}))


if __name__ == "__main__":
    main()
