"""Rules for incidents, and where they come from."""

from dataclasses import dataclass

from at_infer.config import Config
from at_infer.errors import ConfigError
from at_infer.models.statistics import check_finite


@dataclass(frozen=True, slots=True, kw_only=True)
class IncidentRules(Config):
    """An incident opens above one score, closes below a lower one, and bridges short gaps."""

    open_at: float
    """The threshold: an incident opens at a row with a higher score."""
    close_at: float
    """It lasts as long as scores are above this."""
    min_rows: int = 1
    """Minimum number of rows above `close_at`."""
    merge_rows: int = 0
    """Rows below that it bridges, if a row above `open_at` follows."""
    cool_down_rows: int = 0
    """Rows after its end in which no other opens; one that lasts longer opens then."""
    look_ahead_rows: int = 0
    """Rows that the score looks ahead, by which an incident would seem to begin before its cause."""
    outage_rows: int = 60
    """Rows without a value of a feature that are an incident too, where such features are left out of the score."""
    worse_factor: float = 1.5
    """A peak this much above the one announced last is announced again."""
    asked: str | None = None
    """Requested rate of false incidents, as text: 1/day."""
    expected_per_day: float | None = None
    """False incidents per day that the validation part shows with these rules; None: not known."""
    how: str = "given"
    """Where threshold and rate come from, in words."""

    def __str__(self) -> str:
        """For people, after the word incident."""
        least = f"; it has at least {self.min_rows} rows" if self.min_rows > 1 else ""
        quiet = f"; none opens for {self.cool_down_rows} rows after it" if self.cool_down_rows else ""
        rate = f"; requested: {self.asked} false ones" if self.asked else ""
        return (
            f"opens above {self.open_at:.4g}, closes below {self.close_at:.4g}, and bridges {self.merge_rows} rows"
            f"{least}{quiet}{rate}"
        )

    def __post_init__(self) -> None:
        check_finite("open_at", self.open_at)
        check_finite("close_at", self.close_at)
        if self.close_at > self.open_at:
            raise ConfigError(f"close_at: {self.close_at:g} is above the threshold {self.open_at:g}; give a lower one")
        for name in ("min_rows", "outage_rows"):
            self._at_least(name, 1)
        for name in ("merge_rows", "cool_down_rows", "look_ahead_rows"):
            self._at_least(name, 0)
        if not self.worse_factor > 1:
            raise ConfigError(f"worse_factor: {self.worse_factor:g} is too small; it must be above 1")
