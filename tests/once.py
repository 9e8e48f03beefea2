"""What is expensive is made once per run of the tests, by whichever worker needs it first."""

import copy
import fcntl
import hashlib
import io
import os
import shutil
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch

from tests.checkpoints import SHAPE

Once = Callable[[str, Callable[[Path], object]], Path]

ROOT = Path(__file__).parents[1]
KEPT_S = 7 * 86400.0
"""How long traces of other code are kept."""
LEARNT = ("scale.mean", "scale.deviation", "scale.means", "scale.deviations", "error_weights")
"""Buffers that differ from model to model of one shape, as parameters do."""
FIRST, END = 1 << 22, 1 << 24
"""Numbers of values while a graph is traced: no constant of a graph is among them, and float32 has each."""


def make_once(shared: Path, name: str, build: Callable[[Path], object]) -> Path:
    """A folder that `build` has filled; other workers wait for it. Tests copy what they want to change."""
    folder = shared / name
    with (shared / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            half = shared / f"{name}.half"
            shutil.rmtree(half, ignore_errors=True)
            half.mkdir(parents=True)
            build(half)
            half.rename(folder)
    return folder


@cache
def kept_traces() -> Path:
    """A folder of traced graphs for all runs of the tests with the same code and versions."""
    code = hashlib.sha256(sys.version.encode())
    for package in ("torch", "onnx", "onnxscript", "onnx-ir"):
        code.update(f"{package} {version(package)}".encode())
    for part in ("export", "training", "at_infer/models", "at_infer/config.py"):
        for path in sorted([*(ROOT / part).rglob("*.py")] or [ROOT / part]):
            code.update(path.read_bytes())
    folder = ROOT / ".pytest_cache" / "traced" / code.hexdigest()[:32]
    folder.mkdir(parents=True, exist_ok=True)
    os.utime(folder)
    for other in folder.parent.iterdir():
        with suppress(FileNotFoundError):  # another run was faster
            if other.stat().st_mtime < time.time() - KEPT_S:
                shutil.rmtree(other, ignore_errors=True)
    return folder


def trace_all() -> bool:
    """AT_INFER_REAL_TRACES=1: trace and compile all graphs as users do, in minutes: nightly, and with another torch."""
    return os.environ.get("AT_INFER_REAL_TRACES") == "1"


def trace_in_tests(graph: Any, outputs: Sequence[str]) -> onnx.ModelProto:
    """As users do where a graph is of the small checkpoint with the default score, otherwise quickly."""
    config = graph.network.config
    small = all(getattr(config, name) == value for name, value in SHAPE.items())
    usual = getattr(getattr(graph, "score", None), "mode", "fusion") == "fusion"
    whole = all(one.dtype == torch.float32 for one in graph.parameters())
    as_users = trace_all() or (small and usual and whole)
    return trace_once(graph, outputs) if as_users else trace_quickly(graph, outputs)


def trace_quickly(graph: Any, outputs: Sequence[str]) -> onnx.ModelProto:
    """By torch's older exporter, in a twentieth of the time: for tests that need a model, however it was traced.

    Exports compare it with PyTorch as any other. It takes no new operators, and is to be removed from torch some day.
    """
    from export.to_onnx import INPUT, OPSET, _strip

    config, file = graph.network.config, io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            graph.eval(),
            (torch.zeros(2, config.window, config.features),),
            file,
            input_names=[INPUT],
            output_names=list(outputs),
            dynamic_axes={name: {0: "batch"} for name in (INPUT, *outputs)},
            opset_version=OPSET,
            dynamo=False,
        )
    model = onnx.load_from_string(file.getvalue())
    _strip(model)
    return model


def trace_once(graph: Any, outputs: Sequence[str]) -> onnx.ModelProto:
    """`export.to_onnx.trace`, which takes seconds, once for all graphs that differ in what they have learnt only: it is
    kept for the next run of the tests, as long as the code stays as it is.

    What is traced has a number in the place of each such value; exporting moves values, and calculates with none.
    """
    from export.to_onnx import trace

    numbered = copy.deepcopy(graph)
    facts = {name: getattr(of, "__name__", of) for name, of in vars(graph).items() if not name.startswith("_")}
    facts.pop("normal", None)  # of which ScoreGraph has taken what it needs
    if "score" in facts and facts["score"].mode != "calibrated":
        facts.pop("discrepancy_statistics")
    modules = [(name, type(module).__name__, module.extra_repr()) for name, module in graph.named_modules()]
    key = hashlib.sha256(repr([modules, list(outputs), facts, graph.network.config]).encode())
    values: dict[tuple[Any, bytes], int] = {}  # tensors that are equal are one in the file, and stay so
    at, whole = FIRST, all(one.dtype == torch.float32 for one in graph.parameters())  # half precision has few numbers
    for name, tensor in [*numbered.named_parameters(), *numbered.named_buffers()]:
        content = tensor.detach().float().numpy().tobytes()
        key.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        learnt = isinstance(tensor, torch.nn.Parameter) or name in LEARNT
        if whole and learnt and at + tensor.numel() <= END:
            first = values.setdefault((tensor.shape, content), at)
            key.update(f"{first}".encode())
            tensor.data = torch.arange(first, first + tensor.numel(), dtype=torch.float32).view(tensor.shape)
            at = max(at, first + tensor.numel())
        else:
            key.update(content)
    folder = make_once(
        kept_traces(), key.hexdigest()[:32], lambda target: onnx.save(trace(numbered, outputs), target / "model.onnx")
    )
    model = onnx.load(folder / "model.onnx")
    known = np.frombuffer(b"".join(content for _, content in values), np.float32)
    for held in model.graph.initializer:
        if held.data_type != onnx.TensorProto.FLOAT:
            continue
        numbers = onnx.numpy_helper.to_array(held)
        numbered_here = (numbers >= FIRST) & (numbers < at)
        if numbered_here.any():
            found = numbers.copy()
            found[numbered_here] = known[numbers[numbered_here].astype(np.int64) - FIRST]
            held.raw_data = found.tobytes()
    return model
