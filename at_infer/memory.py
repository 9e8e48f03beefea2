"""How memory is kept and given back in a process of our own: a command or a cluster worker, never in a library."""

import os
from contextlib import suppress

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
