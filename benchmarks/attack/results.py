"""Results of several runs as one."""

from collections import Counter
from typing import Any

from benchmarks.attack.command import OUTCOMES


def added(earlier: dict[str, Any], later: dict[str, Any]) -> dict[str, Any]:
    """Two runs of one part, or of parts that were added before, as one."""
    if not earlier:
        return later
    kinds = [*earlier["table"], *(kind for kind in later["table"] if kind not in earlier["table"])]
    rows = {kind: Counter(earlier["table"].get(kind, {})) + Counter(later["table"].get(kind, {})) for kind in kinds}
    return {
        "tried": earlier["tried"] + later["tried"],
        "seconds": earlier["seconds"] + later["seconds"],
        "runs": earlier["runs"] + later["runs"],
        "table": {kind: {name: found[name] for name in OUTCOMES if found[name]} for kind, found in rows.items()},
        "findings": earlier["findings"] + later["findings"],
    }
