"""Numbers inside a page: typed arrays, compressed, as base64; and JSON that cannot end the element it stands in."""

import base64
import gzip
import json
import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

TYPES = {"f4": "<f4", "f8": "<f8", "i4": "<i4", "u1": "<u1"}
DROPPED_BITS = 9  # of a float32 that is only drawn: 14 bits of mantissa are left, 0.003 %


class Arrays:
    """Arrays that a page reads by name."""

    def __init__(self) -> None:
        self.index: dict[str, dict[str, Any]] = {}
        self._parts: list[bytes] = []
        self._size = 0

    def add(self, name: str, values: NDArray[Any], kind: str) -> None:
        """Keep an array; bytes of equal weight go side by side, which compresses better."""
        flat = np.ascontiguousarray(values, TYPES[kind]).reshape(-1)
        packed = flat.view(np.uint8).reshape(-1, flat.itemsize).T.tobytes()
        self.index[name] = {"kind": kind, "at": self._size, "length": len(flat)}
        self._parts.append(packed)
        self._size += len(packed)

    def encode(self) -> str:
        """All of them, as base64 of gzip."""
        return base64.b64encode(gzip.compress(b"".join(self._parts), compresslevel=6, mtime=0)).decode()


def rounded(values: NDArray[np.float32]) -> NDArray[np.float32]:
    """To nearest, in the bits that are worth keeping; NaN stays NaN."""
    bits = values.view(np.uint32).astype(np.uint64) + (1 << (DROPPED_BITS - 1))
    short = (bits >> DROPPED_BITS << DROPPED_BITS).astype(np.uint32).view(np.float32)
    return np.where(np.isfinite(values) & np.isfinite(short), short, values)


def safe_json(value: Any) -> str:
    """JSON for the inside of a script element; NaN and infinity are null."""
    text = json.dumps(finite(value), allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def finite(value: Any) -> Any:
    """The same with null for NaN and infinity."""
    if isinstance(value, dict):
        return {str(name): finite(entry) for name, entry in value.items()}
    if isinstance(value, list | tuple):
        return [finite(entry) for entry in value]
    if isinstance(value, np.ndarray):
        return finite(value.tolist())
    if isinstance(value, np.generic):
        return finite(value.item())
    return None if isinstance(value, float) and not math.isfinite(value) else value
