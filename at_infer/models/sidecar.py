"""The JSON sidecar of a plan: its metadata, and the check that it belongs to this plan.

Loading a plan executes native code, so nothing is loaded before these checks. They catch accidents (a plan swapped
for another, a hand-edited sidecar, the wrong machine), not an attacker who can write both files.
"""

import hashlib
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

from at_infer.errors import ConfigError, EngineError
from at_infer.models.agreement import check_shapes
from at_infer.models.kinds import TITLES, Flavour, json_sha256
from at_infer.models.metadata import Metadata
from at_infer.untrusted import check_regular, read_json, shown

SEAL = "sidecar_sha256"
AMPERE = 80
FACTS: dict[str, type] = {
    "flavour": str,
    "version": str,
    "compute_capabilities": list,
    "plan_sha256": str,
    "onnx_sha256": str,
    "inputs": list,
    "outputs": list,
    SEAL: str,
}


def sidecar_path(plan_path: Path) -> Path:
    """`model.trt` -> `model.trt.json`."""
    return plan_path.with_name(plan_path.name + ".json")


def runtime_cache_path(plan_path: Path, gpu: str, version: str) -> Path:
    """Where TensorRT-RTX keeps the kernels it compiled for a GPU model: others may share the folder."""
    model = re.sub("[^a-z0-9]+", "-", gpu.lower()).strip("-") or "gpu"
    return plan_path.with_name(f"{plan_path.name}.{model}.{version}.cache")


def runtime_caches(plan_path: Path) -> list[Path]:
    """The kernels that any GPU has left beside a plan."""
    try:
        names = sorted(path.name for path in plan_path.parent.iterdir())
    except OSError:
        return []
    mine = [name for name in names if name.startswith(f"{plan_path.name}.") and name.endswith(".cache")]
    return [plan_path.with_name(name) for name in mine]


def seal(metadata: Metadata) -> Metadata:
    """Add a digest of all the other fields, so that a later edit shows."""
    return replace(metadata, engine=dict(metadata.engine or {}) | {SEAL: _digest(metadata.to_dict())})


def load_sidecar(plan_path: Path, plan: bytes | None = None) -> Metadata | None:
    """Metadata of a plan, checked against its bytes; None if it has no sidecar, so is not an export of at-infer.

    A caller that goes on to load the plan passes the bytes it will load.
    """
    path = sidecar_path(plan_path)
    check_regular(plan_path, EngineError)
    try:
        values = read_json(path, EngineError, "; export the model again")
        content = plan_path.read_bytes() if plan is None else plan
    except FileNotFoundError:
        if plan_path.exists():
            return None
        raise EngineError(f"{plan_path}: no such file") from None
    except OSError as error:
        raise EngineError(f"{plan_path}: cannot be read with its sidecar ({error.strerror or error})") from None
    if not isinstance(values, dict):
        raise EngineError(f"{path}: is not the sidecar of a plan; export the model again")
    metadata = Metadata.from_dict(values, str(path))
    facts = _check_facts(metadata.engine, path)
    if facts[SEAL] != _digest(values):
        raise EngineError(f"{path}: was edited after the export; restore it or export the model again")
    if facts["plan_sha256"] != hashlib.sha256(content).hexdigest():
        raise EngineError(
            f"{plan_path}: is not the plan that {path.name} describes (its sha256 differs); "
            "copy both files together or export the model again"
        )
    try:
        check_shapes(metadata.model, *(_shapes(facts[part]) for part in ("inputs", "outputs")))
    except ConfigError as error:
        raise EngineError(f"{path}: its engine facts are damaged ({error}); export the model again") from None
    return metadata


def check_version(metadata: Metadata, installed: str, plan_path: Path) -> None:
    """A plan runs only on exactly the version that built it; a portable one on later ones too."""
    facts = _check_facts(metadata.engine, sidecar_path(plan_path))
    if facts.get("portable") is True and _numbers(installed) >= _numbers(facts["version"]):
        return
    if facts["version"] != installed:
        raise EngineError(
            f"{plan_path}: was built by {TITLES[facts['flavour']]} {facts['version']}, installed is {installed}; "
            "install that version or export the model again with this one"
        )


def check_compute_capability(metadata: Metadata, found: int, plan_path: Path) -> None:
    """A plan runs only on the GPU architectures it was built for; a portable one on all from Ampere on."""
    facts = _check_facts(metadata.engine, sidecar_path(plan_path))
    built_for = facts["compute_capabilities"]
    if found not in built_for and not (facts.get("portable") is True and found >= AMPERE):
        raise EngineError(
            f"{plan_path}: was built for compute capability {', '.join(map(str, built_for))}, this GPU has {found}; "
            f"run at-infer export --compute-capability {found}"
        )


def _numbers(version: str) -> list[int]:
    """`10.16.1.11` in numbers that compare."""
    return [int(part) for part in re.findall(r"\d+", version)]


def _check_facts(facts: Mapping[str, Any] | None, path: Path) -> Mapping[str, Any]:
    if not isinstance(facts, Mapping):
        raise EngineError(f"{path}: describes no plan; export the model again")
    odd = [name for name, kind in FACTS.items() if not isinstance(facts.get(name), kind)]
    if not odd and facts["flavour"] not in get_args(Flavour):
        odd = ["flavour"]
    if odd:
        raise EngineError(f"{path}: its engine facts are damaged ({', '.join(odd)}); export the model again")
    return facts


def _shapes(tensors: list[Any]) -> dict[str, list[Any]]:
    """By name; a tensor without a shape is one of which nothing is known."""
    for tensor in tensors:
        if not isinstance(tensor, dict) or not isinstance(tensor.get("name"), str):
            raise ConfigError(f"tensors: {shown(tensor)} has no name")
    return {tensor["name"]: tensor["shape"] for tensor in tensors if isinstance(tensor.get("shape"), list)}


def _digest(values: Mapping[str, Any]) -> str:
    """sha256 of everything but the digest itself."""
    engine = {name: value for name, value in (values["engine"] or {}).items() if name != SEAL}
    return json_sha256({**values, "engine": engine})
