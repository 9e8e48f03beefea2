"""Files of one model for different machines: the ONNX file, and the plans that were built from it."""

import hashlib
from pathlib import Path
from typing import Any

from at_infer.engines import ONNX_SUFFIXES, PLAN_SUFFIXES, Floats, Scoring
from at_infer.engines.sidecar import load_sidecar
from at_infer.errors import EngineError
from at_infer.metadata import Metadata


def file_sha256(path: Path) -> str:
    """Digest of an engine file."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except FileNotFoundError:
        raise EngineError(f"{path}: no such file") from None
    except OSError as error:
        raise EngineError(f"{path}: cannot be read ({error.strerror or error})") from None


def engine_for(path: Path, compute_capability: int | None) -> Path:
    """The file in the same folder that runs this model on a GPU (89 stands for 8.9), or without one (None).

    A GPU gets the plan that was built for it, if there is one; every other machine gets the ONNX file.
    """
    is_plan = path.suffix in PLAN_SUFFIXES
    origin = _facts(path, load_sidecar(path))["onnx_sha256"] if is_plan else file_sha256(path)
    if compute_capability is not None:
        beside = [other for other in sorted(path.parent.iterdir()) if other.suffix in PLAN_SUFFIXES and other != path]
        for plan in [path, *beside] if is_plan else beside:
            if _is_built(plan, origin, compute_capability):
                return plan
    if not is_plan:
        return path
    for other in sorted(path.parent.iterdir()):
        if other.suffix in ONNX_SUFFIXES and file_sha256(other) == origin:
            return other
    lack = "there is no GPU" if compute_capability is None else f"the GPU has compute capability {compute_capability}"
    raise EngineError(
        f"{path}: cannot run here, {lack}, and neither a plan for it nor the ONNX file of this plan lies beside it"
    )


def _is_built(plan: Path, origin: str, compute_capability: int) -> bool:
    """Was the plan built from this ONNX file, for this GPU? A damaged one was not."""
    try:
        facts = _facts(plan, load_sidecar(plan))
    except EngineError:
        return False
    return facts["onnx_sha256"] == origin and compute_capability in facts["compute_capabilities"]


def _facts(plan: Path, metadata: Metadata | None) -> dict[str, Any]:
    if metadata is None or metadata.engine is None:
        raise EngineError(f"{plan}: has no sidecar, so is not an export of at-infer; export the model again")
    return metadata.engine


class PlanOnPaper(Scoring):
    """What a plan's sidecar tells, for a machine that gives the plan to others: it cannot run."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.metadata = load_sidecar(path)
        self.missing: list[str] = []
        self.outputs = tuple(output["name"] for output in _facts(path, self.metadata)["outputs"])

    def run(self, windows: Floats) -> dict[str, Floats]:  # noqa: ARG002 - it never runs
        """Not here."""
        raise EngineError(f"{self.path}: runs on workers only")

    def describe(self) -> str:
        """For messages."""
        return "a plan"
