"""Files of one model for different machines: the ONNX file, and the plans that were built from it."""

from pathlib import Path
from typing import Any

from at_infer.errors import EngineError
from at_infer.models.kinds import file_sha256, is_onnx, is_plan
from at_infer.models.metadata import Metadata
from at_infer.models.sidecar import AMPERE, load_sidecar


def engine_for(path: Path, compute_capability: int | None) -> Path:
    """The file in the same folder that runs this model on a GPU (89 stands for 8.9), or without one (None).

    A GPU gets the plan that was built for it, if there is one; every other machine gets the ONNX file.
    """
    of_plan = is_plan(path)
    origin = plan_facts(path, load_sidecar(path))["onnx_sha256"] if of_plan else file_sha256(path)
    if compute_capability is not None:
        beside = [other for other in sorted(path.parent.iterdir()) if is_plan(other) and other != path]
        for plan in [path, *beside] if of_plan else beside:
            if _is_built(plan, origin, compute_capability):
                return plan
    if not of_plan:
        return path
    for other in sorted(path.parent.iterdir()):
        if is_onnx(other) and file_sha256(other) == origin:
            return other
    lack = "there is no GPU" if compute_capability is None else f"the GPU has compute capability {compute_capability}"
    raise EngineError(
        f"{path}: cannot run here, {lack}, and neither a plan for it nor its ONNX file is in the same folder"
    )


def _is_built(plan: Path, origin: str, compute_capability: int) -> bool:
    """Was the plan built from this ONNX file, for this GPU? A damaged one was not."""
    try:
        facts = plan_facts(plan, load_sidecar(plan))
    except EngineError:
        return False
    if facts["onnx_sha256"] != origin:
        return False
    return compute_capability in facts["compute_capabilities"] or (
        facts.get("portable") is True and compute_capability >= AMPERE
    )


def plan_facts(plan: Path, metadata: Metadata | None) -> dict[str, Any]:
    """The engine facts in the sidecar."""
    if metadata is None or metadata.engine is None:
        raise EngineError(f"{plan}: has no sidecar, so is not an export of at-infer; export the model again")
    return metadata.engine
