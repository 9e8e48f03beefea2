"""Rates per day."""

from at_infer.errors import ConfigError


def rows_a_day(rows_per_day: float | None, interval: float | None) -> float | None:
    """Rows per day, from that or from the seconds between rows; None if neither is known."""
    if rows_per_day is not None and interval is not None:
        raise ConfigError("interval: `rows_per_day` and `interval` cannot be combined; give one")
    for name, value in (("rows_per_day", rows_per_day), ("interval", interval)):
        if value is not None:
            check_positive(name, value)
    return 86_400 / interval if interval is not None else rows_per_day


def check_positive(name: str, value: float) -> None:
    """Raise if it is not a positive, finite number."""
    if not 0 < value < float("inf"):
        raise ConfigError(f"{name}: {value:g} is not a positive number")
