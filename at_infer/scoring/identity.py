"""Which run it is: what must be the same for a stopped run to be continued, beside its input."""

import json
from collections.abc import Mapping
from typing import Any

from at_infer import __version__
from at_infer.models.kinds import json_sha256
from at_infer.scoring.scorer import Scorer
from at_infer.tables.columns import Columns

MENDED = ("short_series", "on_bad_rows")
"""Options that may change from `error` to something else when a run is resumed."""


def run_identity(scorer: Scorer, columns: Columns) -> dict[str, Any]:
    """As JSON values."""
    identity = {
        "at_infer": __version__,
        "engine": json_sha256(scorer.metadata.to_dict()),
        "options": scorer.options.to_dict(),
        "time column": columns.time_column,
        "series column": columns.series_column,
        "series per file": columns.series_per_file,
        "on bad time": columns.on_bad_time,
    }
    plain: dict[str, Any] = json.loads(json.dumps(identity))
    return plain


def differences(earlier: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Names of the differences; empty if the earlier run may be resumed."""
    odd = [name for name in now if name != "options" and earlier.get(name) != now[name]]
    before = earlier.get("options", {})
    for name, value in now["options"].items():
        if before.get(name) != value and not (name in MENDED and before.get(name) == "error"):
            odd.append(name)
    return odd
