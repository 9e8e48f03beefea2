"""Options by name: which dataclass each belongs to is for this file to know."""

from dataclasses import fields
from typing import Any

from at_infer import EngineOptions, InputOptions, ScoreOptions


def by_kind(**given: Any) -> dict[str, Any]:
    """Arguments of `score_file` or `score_on_workers`; what belongs to no dataclass passes through."""
    found: dict[str, Any] = {}
    for name, kind in (("options", ScoreOptions), ("input_options", InputOptions), ("engine_options", EngineOptions)):
        own = {entry.name for entry in fields(kind)} & given.keys()
        if own:
            found[name] = kind(**{entry: given.pop(entry) for entry in own})
    return found | given
