"""What an export has written: files, and facts about them for tables and JSON."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from at_infer.models.metadata import Metadata


@dataclass(frozen=True, slots=True)
class Exported:
    """One written file."""

    path: Path
    metadata: Metadata


@dataclass(frozen=True, slots=True)
class ExportReport:
    """What an export wrote."""

    files: list[Exported]
    """Score graph, associations graph, and the plan if there is one."""
    no_engine: str | None
    """Why there is no plan, if one could have been expected."""


@dataclass(frozen=True, slots=True)
class FileFacts:
    """One written file, for tables and JSON."""

    file: str
    bytes: int
    precision: str
    engine: dict[str, Any] | None
    """Of a plan, as in its metadata."""
    windows: Literal["real", "random"]
    """What it was compared with PyTorch on."""
    agreement: dict[str, float]
    """Effect on scores and verdicts; empty for a graph without scores."""
    max_abs: dict[str, float]
    """Largest difference of each output."""


def describe(exported: Exported) -> FileFacts:
    """Size and agreement of one file."""
    metadata = exported.metadata
    cases = {name: case for name, case in metadata.parity.items() if name in ("real", "random")}
    agreement = cases.get("real", cases["random"]).get("agreement", {})
    worst = {
        output: figures["max_abs"]
        for output, figures in cases.get("real", cases["random"]).items()
        if output != "agreement"
    }
    return FileFacts(
        file=str(exported.path),
        bytes=exported.path.stat().st_size,
        precision=metadata.precision,
        engine=metadata.engine,
        windows="real" if "real" in cases else "random",
        agreement=agreement,
        max_abs=worst,
    )
