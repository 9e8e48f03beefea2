"""How many worker threads there may be, and how they wait for work."""

import os

from at_infer.errors import ConfigError


def check_threads(threads: int | None) -> None:
    """None stands for all CPUs."""
    if threads is not None and threads < 1:
        raise ConfigError(f"threads: {threads} is too small; at least 1")


def cpu_count() -> int:
    """CPUs that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def let_threads_sleep() -> None:
    """Let OpenMP threads sleep instead of spin between two operations; call it before torch is imported.

    On an idle machine it costs nothing that could be measured; on one whose cores are shared, spinning threads take
    the time of those that have work, and training was seen to run at a quarter of its speed.
    """
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
