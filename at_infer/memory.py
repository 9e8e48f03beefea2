"""Memory: what there is of it, and how it is kept and given back in a process of our own, never in a library."""

import os
from contextlib import suppress
from pathlib import Path

from at_infer.errors import DataError

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # of malloc.h
_MB = 1 << 20


def own_memory() -> None:
    """Call it before polars is imported.

    Freed arrays of a few megabytes are used again by the next ones, where the C library is glibc: by default they go
    back to the system at once, and mapping fresh pages takes longer than the arithmetic on them. What polars frees
    goes back soon: by default its allocator keeps it, and peaks of one moment and the next add up.
    """
    os.environ.setdefault("_RJEM_MALLOC_CONF", "dirty_decay_ms:200,muzzy_decay_ms:0")
    with suppress(ImportError, OSError, AttributeError, TypeError):
        import ctypes

        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_MMAP_THRESHOLD, 8 * _MB)
        mallopt(_TRIM_THRESHOLD, 64 * _MB)


def check_memory(needed: int, source: str, what: str) -> None:
    """Fail at once where rows cannot be held: a small file may ask for much, and the system would end the process."""
    free = available_bytes()
    if free is not None and needed > free:
        raise DataError(
            f"{source}: {what} take {needed / 1e9:.1f} GB, {free / 1e9:.1f} GB of memory are free; use fewer rows or "
            "columns"
        )


def available_bytes() -> int | None:
    """Free memory of the system, at most the limit of the container; None if unknown."""
    found: list[int] = []
    with suppress(OSError, ValueError, StopIteration):
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        found.append(next(int(line.split()[1]) << 10 for line in lines if line.startswith("MemAvailable")))
    with suppress(OSError, ValueError):  # "max" is no limit; what is used of it counts files that are read again
        found.append(int(Path("/sys/fs/cgroup/memory.max").read_text(encoding="ascii")))
    return min(found, default=None)
