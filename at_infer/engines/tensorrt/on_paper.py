"""A plan on a machine that cannot run it, such as the driver of a cluster: only its sidecar is read."""

from pathlib import Path

from at_infer.engines import Floats, Scoring
from at_infer.errors import EngineError
from at_infer.models.family import plan_facts
from at_infer.models.sidecar import load_sidecar


class PlanOnPaper(Scoring):
    """An engine that describes a plan without loading it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.metadata = load_sidecar(path)
        self.missing: list[str] = []
        self.outputs = tuple(output["name"] for output in plan_facts(path, self.metadata)["outputs"])

    def run(self, windows: Floats) -> dict[str, Floats]:  # noqa: ARG002 - it never runs
        """Not here."""
        raise EngineError(f"{self.path}: runs on workers only")

    def describe(self) -> str:
        """For messages."""
        return "a plan"
