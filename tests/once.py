"""What is expensive is made once per run of the tests, by whichever worker needs it first."""

import fcntl
import hashlib
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import onnx

Once = Callable[[str, Callable[[Path], object]], Path]


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
    """`export.to_onnx.trace`, which takes seconds, for the same graph once."""
    from export.to_onnx import trace

    facts = {name: getattr(of, "__name__", of) for name, of in vars(graph).items() if not name.startswith("_")}
    modules = [(name, type(module).__name__, module.extra_repr()) for name, module in graph.named_modules()]
    key = hashlib.sha256(repr([modules, list(outputs), facts, graph.network.config]).encode())
    for name, tensor in [*graph.named_parameters(), *graph.named_buffers()]:
        key.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        key.update(tensor.detach().float().numpy().tobytes())
    digest = key.hexdigest()[:32]
    folder = once(f"traced-{digest}", lambda target: onnx.save(trace(graph, outputs), target / "model.onnx"))
    return onnx.load(folder / "model.onnx")
