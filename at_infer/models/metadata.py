"""Metadata of an exported model: ONNX metadata_props, or the JSON sidecar of a plan."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Literal, Self

from at_infer.errors import AtInferError, ConfigError, EngineError
from at_infer.models.agreement import check_knowledge
from at_infer.models.knowledge import Knowledge
from at_infer.models.statistics import ValidationRecord, upgrade_validation
from at_infer.untrusted import load_json, typed_fields

FORMAT = 2
PREFIX = "at_infer."
DIGEST = "digest"
"""Property of an ONNX file with the sha256 of all that is in it beside."""
LIVE_GRAPH = "live.onnx"
"""Property of an ONNX file: a graph, in base64, that reconstructs the last row of a window alone."""

Graph = Literal["score", "associations"]

ADDED = ("normal", "parent_sha256", "season", "spacing", "grid")  # None in models of earlier versions of at-infer


@dataclass(frozen=True, slots=True, kw_only=True)
class Metadata(Knowledge):
    """Everything a runtime needs to use a model, and everything a person needs to trust it."""

    format: int
    """Version of this layout."""
    at_infer: str
    """Version of at-infer that exported the model."""
    checkpoint_sha256: str
    parent_sha256: str | None
    """Of the checkpoint that this one was trained from (`train --from`), if any."""
    graph: Graph
    """`score`: windows in, scores out. `associations`: reconstruction and the associations of every layer."""
    alignment: str
    """How windows are laid over rows and which window scores a row."""
    precision: str
    fp32_ops: str
    """What stays in float32 in a graph of lower precision."""
    batch: list[int] | None
    """Minimum, optimum and maximum batch size of a plan; None: any."""
    parity: dict[str, Any]
    """How far the exported graph is from the PyTorch model, as measured by the export."""
    engine: dict[str, Any] | None
    """Of a plan: flavour, version, compute capabilities, sha256 of the plan and of its ONNX file."""

    def with_validation(self, record: ValidationRecord) -> Self:
        """The same with another record, in place of one for the same way to score."""
        others = [one for one in self.validation if (one.align, one.delay) != (record.align, record.delay)]
        records = sorted([*others, record], key=lambda one: (one.align != "window", one.delay))
        return replace(self, validation=records)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any], source: str) -> Self:
        """The reverse of `to_dict`; `source` is for messages."""
        found = values.get("format")
        if isinstance(found, int) and found > FORMAT:
            raise EngineError(f"{source}: was exported with metadata format {found}; upgrade at-infer to read it")
        try:
            values = {**dict.fromkeys(ADDED), **(upgrade_validation(values) if found == 1 else values)}
            missing = [entry.name for entry in fields(cls) if entry.name not in values]
            if missing:
                raise EngineError(f"{source}: its metadata lack {', '.join(missing)}; export the model again")
            known = cls(**typed_fields(cls, {entry.name: values[entry.name] for entry in fields(cls)}))
            check_knowledge(known)
            if known.batch is not None and not (len(known.batch) == 3 and 0 < known.batch[0] <= known.batch[2]):
                raise ConfigError(f"batch: {known.batch} is not a minimum, optimum and maximum")
        except EngineError:
            raise
        except (AtInferError, KeyError, TypeError) as error:
            raise EngineError(f"{source}: its metadata are damaged ({error}); export the model again") from None
        return known

    def to_properties(self) -> dict[str, str]:
        """One string per field, for ONNX `metadata_props`."""
        return {PREFIX + name: json.dumps(value, sort_keys=True) for name, value in self.to_dict().items()}

    @classmethod
    def from_properties(cls, properties: Mapping[str, str], source: str) -> Self | None:
        """The reverse of `to_properties`; None if the model is not an export of at-infer."""
        ours = {name.removeprefix(PREFIX): text for name, text in properties.items() if name.startswith(PREFIX)}
        if not ours:
            return None
        try:
            values = {name: load_json(text) for name, text in ours.items() if name != DIGEST}
        except ValueError as error:
            raise EngineError(f"{source}: its metadata are damaged ({error}); export the model again") from None
        return cls.from_dict(values, source)
