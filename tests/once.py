"""What is expensive is made once per run of the tests, by whichever worker needs it first."""

import copy
import fcntl
import hashlib
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch

Once = Callable[[str, Callable[[Path], object]], Path]

LEARNT = ("scale.mean", "scale.deviation", "error_weights")
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


def trace_once(once: Once, graph: Any, outputs: Sequence[str]) -> onnx.ModelProto:
    """`export.to_onnx.trace`, which takes seconds, once for all graphs that differ in what they have learnt only.

    What is traced has a number in the place of each such value; exporting moves values, and calculates with none.
    """
    from export.to_onnx import trace

    numbered = copy.deepcopy(graph)
    facts = {name: getattr(of, "__name__", of) for name, of in vars(graph).items() if not name.startswith("_")}
    facts.pop("normal", None)  # of which ScoreGraph has taken what it needs
    if "score" in facts and facts["score"].mode != "calibrated":
        facts.pop("usual_discrepancy")
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
    digest = key.hexdigest()[:32]
    folder = once(f"traced-{digest}", lambda target: onnx.save(trace(numbered, outputs), target / "model.onnx"))
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
