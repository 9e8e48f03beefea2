"""How worker threads wait for work."""

import os


def let_threads_sleep() -> None:
    """Let OpenMP threads sleep instead of spin between two operations; call it before torch is imported.

    On an idle machine it costs nothing that could be measured; on one whose cores are shared, spinning threads take
    the time of those that have work, and training was seen to run at a quarter of its speed.
    """
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
