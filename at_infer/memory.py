"""How the C library keeps memory that numpy has freed."""

import ctypes
from contextlib import suppress

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # of malloc.h
_MB = 1 << 20


def keep_freed_memory() -> None:
    """Let freed arrays of a few megabytes be used again by the next ones, where the C library is glibc.

    By default they go back to the system at once, and mapping fresh pages takes longer than the arithmetic on them.
    """
    with suppress(OSError, AttributeError, TypeError):
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_MMAP_THRESHOLD, 8 * _MB)
        mallopt(_TRIM_THRESHOLD, 64 * _MB)
