"""Times of the rows of a stream: checks that they increase, and passes them to the scoring core."""

from datetime import datetime

from at_infer.choices import BadTime
from at_infer.errors import DataError
from at_infer.live.times import Moment, Time, check_order, moment, seconds
from at_infer.scoring.scorer import Scorer
from at_infer.tables.clock import seconds_of


class StreamClock:
    """Reads times as one model needs them."""

    def __init__(self, scorer: Scorer, on_bad_time: BadTime) -> None:
        self.clock, self.on_bad_time = scorer.clock, on_bad_time
        self.has_season = scorer.metadata.season is not None
        self.is_told = False
        """Was it said that times are of another kind than in training?"""

    def read(self, written: Time | None, last: tuple[Moment, Time] | None) -> tuple[Moment, Time] | None:
        """The time of a row, behind that of the row before it; raises if it is none, or does not rise."""
        if written is None:
            if self.has_season:
                raise DataError("has no time; the model subtracts a season and needs it")
            return None
        now = moment(written)
        if self.has_season:
            seconds(now, written)
        if last is not None and self.on_bad_time != "ignore":
            check_order(last[0], now, last[1], written)
        return now, written

    def number(self, time: tuple[Moment, Time] | None, notes: list[str]) -> float | None:
        """For the season and for gaps; None if it tells nothing of them, which is noted once."""
        if self.clock is None or time is None:
            return None
        value = time[0].value
        if isinstance(value, datetime) is (self.clock == "date"):
            return seconds_of(value) if isinstance(value, datetime) else float(value)
        if not self.is_told:
            self.is_told = True
            usual = "dates and times" if self.clock == "date" else "numbers"
            notes.append(f"times are not {usual} as in the training data; gaps in time are ignored")
        return None
