"""Why a row is flagged: feature, share and view, as the columns that `at-infer score --explain` writes."""

import math
from typing import Any

import numpy as np

from at_infer.live.pushed import Pushed
from at_infer.scoring.columns import scored_columns
from at_infer.scoring.scorer import Scorer


def reasons(scorer: Scorer, pushed: Pushed) -> dict[int, dict[str, Any]]:
    """By number of the row among those pushed, for flagged rows only; empty unless `explain` was asked for."""
    if scorer.options.explain == "none" or not pushed.is_anomaly.any():
        return {}
    flagged = np.flatnonzero(pushed.is_anomaly)
    columns = scored_columns(scorer, pushed.channels[flagged])
    names = [name for name in columns if name not in ("score", "is_anomaly")]
    rows = zip(*(columns[name].tolist() for name in names), strict=True)
    return {i: dict(zip(names, map(_value, row), strict=True)) for i, row in zip(flagged.tolist(), rows, strict=True)}


def _value(value: str | float | None) -> str | float | None:
    """JSON has neither NaN nor infinity; nine digits hold a float32."""
    if not isinstance(value, float):
        return value
    return float(f"{value:.9g}") if math.isfinite(value) else None
