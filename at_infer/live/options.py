"""Options of `at-infer watch`, besides those of scoring."""

from dataclasses import dataclass
from pathlib import Path

from at_infer.choices import NoticeFormat, RowFormat, WatchOutput
from at_infer.config import Config
from at_infer.errors import ConfigError
from at_infer.live.scorer import MAX_SERIES


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchOptions(Config):
    """Where rows come from, how long they wait, what is stored, and who hears of incidents."""

    follow: Path | None = None
    """A file that grows; None: stdin."""
    from_end: bool = False
    """With `follow`: only new lines."""
    format: RowFormat = "auto"
    header: tuple[str, ...] | None = None
    """Columns of CSV without a header line."""
    every: int = 1
    """Score every K-th row of a series."""
    max_series: int = MAX_SERIES
    """In memory; the least recently seen is dropped."""
    max_delay_s: float = 0.01
    """A row waits at most this long for others, so that the engine gets windows of many series at once."""
    state: Path | None = None
    """File that stores the state of all series."""
    state_interval_s: float = 60.0
    """Between writes of the state; it is also written at the end."""
    reload: bool = False
    """Reload the engine when its file changes, not only on request."""
    only: WatchOutput = "rows"
    on_incident: str | None = None
    """Command to run for each event of an incident."""
    webhook: str | None = None
    """URL to post each event to."""
    webhook_format: NoticeFormat = "json"
    metrics: str | None = None
    """Address of the metrics, `[HOST]:PORT`; None: they are not served."""

    def __post_init__(self) -> None:
        if self.from_end and self.follow is None:
            raise ConfigError("from_end: needs `follow`; stdin is always read from its start")
        if not self.state_interval_s >= 0:
            raise ConfigError(
                f"state_interval_s: {self.state_interval_s:g} s is negative or not a number; give 0 or more"
            )
        if not 0 <= self.max_delay_s < float("inf"):
            raise ConfigError(f"max_delay_s: {1000 * self.max_delay_s:g} ms is not a duration; give 0 or more")
        self._choice("format", RowFormat)
        self._choice("only", WatchOutput)
        self._choice("webhook_format", NoticeFormat)

    @property
    def reports_incidents(self) -> bool:
        """On stdout, or to a command or webhook."""
        return self.only == "incidents" or self.on_incident is not None or self.webhook is not None

    @property
    def tracks_incidents(self) -> bool:
        """To report or to count them."""
        return self.reports_incidents or self.metrics is not None
