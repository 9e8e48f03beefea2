"""Files of scores to report on, and what a written page says of itself."""

import base64
import gzip
import json
import re
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

KINDS = {"f4": "<f4", "f8": "<f8", "i4": "<i4", "u1": "<u1"}
NASTY = "</script><script>document.title='broken'</script><img src=x onerror=alert(1)> \"'&$x^$"


def write_scores(path: Path, columns: dict[str, Any], threshold: float | None = 0.5) -> Path:
    """A file as at-infer score writes it."""
    frame = pl.DataFrame(columns).with_columns(pl.col("score").cast(pl.Float32))
    metadata = {} if threshold is None else {"at_infer.threshold": json.dumps(threshold)}
    frame.write_parquet(path, metadata=metadata)
    return path


def minutes(count: int) -> pl.Series:
    start = datetime(2024, 3, 1)
    return pl.datetime_range(start, start + timedelta(minutes=count - 1), "1m", time_unit="us", eager=True)


def noisy_scores(rows: int, seed: int = 0) -> np.ndarray:
    """Mostly small, with runs of large ones."""
    rng = np.random.default_rng(seed)
    scores = rng.lognormal(-3, 0.7, rows)
    for start in rng.integers(0, max(rows - 20, 1), max(rows // 200, 1)):
        scores[start : start + rng.integers(1, 20)] *= 30
    return scores.astype(np.float32)


class Page:
    """What is inside a written report."""

    def __init__(self, path: Path) -> None:
        self.text = path.read_text(encoding="utf-8")
        self.description: dict[str, Any] = json.loads(self._script("application/json"))
        self.bytes = gzip.decompress(base64.b64decode(self._script("text/plain")))

    def _script(self, kind: str) -> str:
        found = re.findall(rf'<script type="{kind}" id="\w+">(.*?)</script>', self.text, re.DOTALL)
        assert len(found) == 1
        return str(found[0])

    def array(self, name: str) -> np.ndarray:
        entry = self.description["arrays"][name]
        kind = np.dtype(KINDS[entry["kind"]])
        size = entry["length"] * kind.itemsize
        shuffled = np.frombuffer(self.bytes, np.uint8, size, entry["at"]).reshape(kind.itemsize, -1)
        return np.ascontiguousarray(shuffled.T).view(kind).reshape(-1)
