"""Facts about a model or a scores file."""

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from at_infer.config import ModelConfig
from at_infer.errors import AtInferError, CheckpointError
from at_infer.models.kinds import PLAN_TAGS, TITLES, file_sha256
from at_infer.models.metadata import PREFIX, Metadata
from at_infer.models.sidecar import load_sidecar, sidecar_path
from at_infer.models.signatures import check_digest, onnx_opsets
from at_infer.untrusted import load_json, read_json

CheckpointKind = Literal["resume", "checkpoint", "published-checkpoint"]
FEW = 6  # entries of a list that are shown in full


@dataclass(frozen=True, slots=True, kw_only=True)
class Inspection:
    """What was found in a file."""

    file: str
    kind: str
    what: str
    """One line for people."""
    facts: dict[str, Any]
    """Of the file itself."""
    metadata: dict[str, Any] | None
    """As at-infer wrote them; None if the file carries none."""
    notes: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    """Why the file cannot be used."""

    def to_json(self) -> str:
        """Everything, as one JSON document; NaN and infinity are null."""
        return json.dumps(_finite(asdict(self)), allow_nan=False)


def inspect_onnx(path: Path) -> Inspection:
    """An ONNX file, ours or not."""
    from at_infer.engines.ort import check_graph, open_session, utf8_names

    with path.open("rb") as file:
        facts: dict[str, Any] = file_facts(path) | {"opset": onnx_opsets(file)}
    try:
        session = open_session(path, threads=1, optimize=False)
    except AtInferError as error:
        return Inspection(
            file=str(path), kind="onnx", what="ONNX model", facts=facts, metadata=None, problems=[str(error)]
        )
    properties: dict[str, str] = {}
    try:
        with utf8_names(path):
            facts |= {"inputs": _tensors(session.get_inputs()), "outputs": _tensors(session.get_outputs())}
            about = session.get_modelmeta()
            facts["producer"], properties = about.producer_name, about.custom_metadata_map
        metadata = Metadata.from_properties(properties, str(path))
        check_digest(path)
        if metadata is not None:
            check_graph(session, metadata, path)
    except AtInferError as error:
        what, values = "ONNX model exported by at-infer", _decode(properties)
        return Inspection(file=str(path), kind="onnx", what=what, facts=facts, metadata=values, problems=[str(error)])
    if metadata is None:
        facts["properties"] = properties
        notes = ["not exported by at-infer: columns, scaler, window and threshold are unknown"]
        return Inspection(file=str(path), kind="onnx", what="ONNX model", facts=facts, metadata=None, notes=notes)
    what = f"{metadata.graph} graph in ONNX, {metadata.precision}, exported by at-infer {metadata.at_infer}"
    return Inspection(file=str(path), kind="onnx", what=what, facts=facts, metadata=metadata.to_dict())


def inspect_plan(path: Path) -> Inspection:
    """A plan and its sidecar; needs neither TensorRT nor a GPU."""
    with path.open("rb") as file:
        head = file.read(28)
    tag = PLAN_TAGS.get(head[:4])
    flavour = None if tag is None else TITLES[tag]
    version = ".".join(map(str, head[24:28])) if flavour and len(head) == 28 else None
    facts = file_facts(path) | {"flavour": flavour, "version": version, "sidecar": str(sidecar_path(path))}
    title = f"{flavour or 'TensorRT'} plan"
    try:
        metadata = load_sidecar(path)
    except AtInferError as error:
        values = _sidecar_values(path)
        return Inspection(file=str(path), kind="plan", what=title, facts=facts, metadata=values, problems=[str(error)])
    if metadata is None:
        facts["sidecar"] = None
        notes = [
            f"there is no {sidecar_path(path).name} beside it: columns, scaler, window and threshold are unknown, and "
            "inputs and outputs only show on a GPU"
        ]
        return Inspection(file=str(path), kind="plan", what=title, facts=facts, metadata=None, notes=notes)
    what = f"{title}, {metadata.graph} graph, {metadata.precision}, exported by at-infer {metadata.at_infer}"
    return Inspection(file=str(path), kind="plan", what=what, facts=facts, metadata=metadata.to_dict())


def checkpoint_kind(path: Path, content: Any) -> CheckpointKind:
    """Which of the files of PyTorch that at-infer knows has this content."""
    if isinstance(content, dict):
        if "identity" in content:
            return "resume"
        if "format" in content:
            return "checkpoint"
        if any("encoder.attn_layers." in str(name) for name in content):
            return "published-checkpoint"
    raise CheckpointError(
        f"{path}: is a PyTorch file, but no checkpoint of at-infer or of the published implementation"
    )


def inspect_resume(path: Path, content: Mapping[str, Any]) -> Inspection:
    """The state of an interrupted training."""
    what = "state of an interrupted training; the same training with `resume` continues it"
    metadata = {name: content.get(name) for name in ("identity", "state")}
    return Inspection(file=str(path), kind="resume", what=what, facts=file_facts(path), metadata=metadata)


def inspect_checkpoint(path: Path, content: Mapping[str, Any], weights: Mapping[str, Any]) -> Inspection:
    """A checkpoint of `at-infer train`, loaded."""
    metadata = _plain({name: value for name, value in content.items() if name != "state_dict"})
    facts, what = file_facts(path) | {"parameters": count_weights(weights)}, "checkpoint of at-infer train"
    return Inspection(file=str(path), kind="checkpoint", what=what, facts=facts, metadata=metadata)


def inspect_published(path: Path, model: ModelConfig, weights: Mapping[str, Any]) -> Inspection:
    """A checkpoint of the published implementation, loaded as if for any window."""
    return Inspection(
        file=str(path),
        kind="published-checkpoint",
        what="checkpoint of the published implementation",
        facts=file_facts(path) | {"parameters": count_weights(weights)},
        metadata={"model": {name: value for name, value in model.to_dict().items() if name != "window"}},
        notes=["it knows no window, columns, scaler or threshold; load it with `published`"],
    )


def inspect_parquet(path: Path) -> Inspection:
    """A file of scores, or of data."""
    from at_infer.tables import read_metadata

    footer = read_metadata(path)
    ours = any(name.startswith(PREFIX) for name in footer.properties)
    scores = ours or {"score", "is_anomaly"} <= footer.columns.keys()
    facts = {"bytes": path.stat().st_size, "rows": footer.rows, "columns": footer.columns}
    foreign = {name: text for name, text in footer.properties.items() if not name.startswith(PREFIX)}
    if foreign:
        facts["properties"] = foreign
    return Inspection(
        file=str(path),
        kind="scores" if scores else "parquet",
        what=f"{'scores' if scores else 'data'} in Parquet, {footer.rows} rows of {len(footer.columns)} columns",
        facts=facts,
        metadata=_decode(footer.properties) if ours else None,
        notes=["it does not say which model wrote it"] if scores and not ours else [],
    )


def file_facts(path: Path) -> dict[str, Any]:
    """Size and sha256, by which the metadata of other files may refer to this one."""
    return {"bytes": path.stat().st_size, "sha256": file_sha256(path)}


def count_weights(tensors: Mapping[str, Any]) -> int:
    """Numbers in all tensors together."""
    return sum(math.prod(tensor.shape) for tensor in tensors.values())


def rows(report: Inspection) -> Iterator[tuple[str, str]]:
    """The report as names and short texts, one level of nesting unfolded."""
    for part in (report.facts, report.metadata or {}):
        for name, value in part.items():
            if name == "bytes":
                yield "size", f"{value / 1e6:.3g} MB ({value} bytes)"
            elif isinstance(value, Mapping) and value and name != "columns":
                yield from ((f"{name}.{key}", shorten(entry)) for key, entry in value.items())
            elif name == "validation" and isinstance(value, list) and all(isinstance(v, Mapping) for v in value):
                yield from (entry for record in value for entry in _validation_rows(record))
            elif isinstance(value, list) and value and all(isinstance(v, Mapping) and "shape" in v for v in value):
                yield from ((name, f"{v['name']}  {v['type']} {v['shape']}") for v in value)
            else:
                yield name, shorten(value)


def _validation_rows(record: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """`validation.window.threshold.value` and so on."""
    delay = f"-{record['delay']}" if record.get("delay") else ""
    for part in ("threshold", "quantiles"):
        known = record.get(part)
        for key, entry in known.items() if isinstance(known, Mapping) else ():
            yield f"validation.{record.get('align')}{delay}.{part}.{key}", shorten(entry)


def shorten(value: Any) -> str:
    """A value in a few words; long lists lose their middle."""
    if isinstance(value, Mapping):
        return _join([f"{name} {_bracket(entry)}" for name, entry in value.items()]) or "none"
    if isinstance(value, list | tuple):
        if any(isinstance(entry, Mapping | list | tuple) for entry in value):
            return "1 entry" if len(value) == 1 else f"{len(value)} entries"
        return _join([shorten(entry) for entry in value]) or "none"
    if isinstance(value, float):
        return f"{value:.6g}"
    return "none" if value is None else str(value)


def _plain(value: Any) -> Any:
    """Lists in place of tensors."""
    if isinstance(value, dict):
        return {name: _plain(entry) for name, entry in value.items()}
    return value.tolist() if hasattr(value, "tolist") else value


def _tensors(values: list[Any]) -> list[dict[str, Any]]:
    return [{"name": v.name, "type": v.type.removeprefix("tensor(").rstrip(")"), "shape": v.shape} for v in values]


def _decode(properties: Mapping[str, str]) -> dict[str, Any]:
    """Our properties without their prefix, JSON where it is JSON."""
    decoded: dict[str, Any] = {}
    for name, text in properties.items():
        if name.startswith(PREFIX):
            try:
                decoded[name.removeprefix(PREFIX)] = load_json(text)
            except ValueError:
                decoded[name.removeprefix(PREFIX)] = text
    return decoded


def _sidecar_values(plan_path: Path) -> dict[str, Any] | None:
    """A sidecar that failed its checks is still worth a look."""
    try:
        values = read_json(sidecar_path(plan_path), AtInferError)
    except (OSError, AtInferError):
        return None
    return values if isinstance(values, dict) else None


def _bracket(value: Any) -> str:
    return f"({shorten(value)})" if isinstance(value, Mapping | list | tuple) else shorten(value)


def _join(texts: list[str]) -> str:
    if len(texts) <= FEW:
        return ", ".join(texts)
    return f"{', '.join(texts[: FEW // 2])} ... {texts[-1]} ({len(texts)} in all)"


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(name): _finite(entry) for name, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(entry) for entry in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
