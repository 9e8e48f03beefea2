"""What went through a stream, in numbers."""

from dataclasses import dataclass, field


@dataclass(slots=True)
class Tally:
    """Counted by the loop, read by another thread at any moment: no entry comes or goes after the start."""

    rows: int = 0
    scored: int = 0
    anomalies: int = 0
    bad_lines: int = 0
    dropped_series: int = 0
    dropped_rows: int = 0
    """Left out because their times do not rise."""
    incidents_open: int = 0
    events: dict[str, int] = field(default_factory=lambda: {"opened": 0, "worse": 0, "closed": 0})
    """Of incidents, by kind."""
    notifications: dict[tuple[str, str], int] = field(default_factory=dict)
    """Events by way (command, webhook) and result (delivered, failed, dropped)."""
    reloads: dict[str, int] = field(default_factory=lambda: {"done": 0, "refused": 0})
    """Attempts to replace the engine, by result."""
