"""Finds the daily season of training rows: features whose profile by time of day explains days it was not made from."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from at_infer.config import SeasonChoice
from at_infer.errors import DataError
from at_infer.models.season import DAY_S, Season
from at_infer.tables import Table

BIN_S = 300.0  # finer is noise: the profile is a mean over SMOOTH_S anyway
SMOOTH_S = 900.0
LEAST_BINS = 4
LEAST_DAYS = 3
LEAST_SHARE = 0.25  # of the variance, in both tests; random walks stay below it
FULL_DAY = 0.75  # share of its bins that have a row
MOST_DAYS = 60  # that the tests look at

Floats = NDArray[np.float64]
Span = tuple[int, int]


class NoSeasonError(ValueError):
    """The rows cannot show a season; the message says why."""


def choose_season(
    table: Table, train_spans: Sequence[Span], choice: SeasonChoice, known: Season | None
) -> tuple[Season | None, str]:
    """The season of the training part, and one line that says which, or why there is none.

    `known` is that of weights to start from: they need the same columns, with a new profile if the rows suffice.
    """
    if choice == "none":
        return None, "none, as asked for"
    count = len(table.columns)
    features = list(range(count)) if choice == "1d" else None if known is None else known.features
    try:
        if table.times is None:
            raise NoSeasonError("no time column with dates and times")
        season = find_season(table.values, table.times, train_spans, features)
    except NoSeasonError as error:
        if features is None:
            return None, f"none ({error})"
        if known is not None and table.times is not None:
            return known, f"that of the earlier weights ({error})"
        raise DataError(
            f"{table.source}: {error}; a season needs `time_column` with dates and times and {LEAST_DAYS} full days of "
            f"training rows; or pass season='none'"
        ) from None
    if season is None:
        return None, "none (no column has a daily cycle that later days repeat)"
    return season, f"{season.period_s / 3600:g} h profile of {len(season.features)} of {count} columns"


def subtract_season(table: Table, season: Season) -> None:
    """In place, before gaps are filled: a gap repeats a deviation from the season."""
    if table.times is None:
        raise DataError(f"{table.source}: has no time column with dates and times, unlike the training part")
    season.subtract(table.values, table.times)


def find_season(
    values: NDArray[np.float32], times: Floats, spans: Sequence[Span], features: Sequence[int] | None = None
) -> Season | None:
    """The profile of the features that pass both tests, or of the given `features`; None if there are none."""
    spacing = _spacing(times, spans)
    bins = round(DAY_S / max(spacing, BIN_S))
    if bins < LEAST_BINS:
        raise NoSeasonError(f"rows are {spacing / 3600:.3g} h apart")
    width = DAY_S / bins
    offset = float(times[spans[0][0]] % width)
    rows, cells, series, full = _lay_out(times, spans, bins, offset)
    if not full.any():
        raise NoSeasonError(f"fewer than {LEAST_DAYS} full days of training rows")
    smooth = 2 * int(SMOOTH_S / width / 2) + 1
    profile: list[list[float]] = []
    for j in range(values.shape[1]):
        column = values[rows, j]
        known = ~np.isnan(column)
        count = np.bincount(cells[known], minlength=full.size * bins)
        total = np.bincount(cells[known], weights=column[known], minlength=full.size * bins)
        with np.errstate(invalid="ignore"):
            days = (total / count).reshape(-1, bins)
        tested = full & ((~np.isnan(days)).mean(axis=1) >= FULL_DAY)
        wanted = has_season(days[tested], series[tested], smooth) if features is None else j in features
        profile.append(_centred(profile_of(days, smooth)) if wanted else [])
    return Season(offset_s=offset, profile=profile) if any(profile) else None


def has_season(days: Floats, series: NDArray[np.int64], smooth: int) -> bool:
    """(days, bins) of full days in order, and the series of each: do both held-out tests find a season?"""
    held = np.zeros(len(days), np.bool_)
    for name in np.unique(series):
        own = np.flatnonzero(series == name)
        held[own[-max(1, len(own) // 4) :]] = True
    if len(days) < LEAST_DAYS or held.all():
        return False
    return later_days(days[~held], days[held], smooth) > LEAST_SHARE and other_days(days) > LEAST_SHARE


def later_days(earlier: Floats, later: Floats, smooth: int) -> float:
    """Share of the variance of later days, around the median of the earlier ones, that their profile explains."""
    left, all_ = later - profile_of(earlier, smooth), later - _median(earlier.reshape(-1, 1))
    return _explained(left, all_)


def other_days(days: Floats) -> float:
    """Median over days: share of a day's shape that the median shape of the other days explains."""
    chosen = days[np.unique(np.linspace(0, len(days) - 1, min(len(days), MOST_DAYS)).astype(int))]
    shapes = chosen - np.nanmean(chosen, axis=1, keepdims=True)
    shares = []
    for i, shape in enumerate(shapes):
        usual = _median(np.delete(shapes, i, axis=0))
        shares.append(_explained(shape - (usual - np.nanmean(usual)), shape))
    return float(np.median(shares))


def profile_of(days: Floats, smooth: int) -> Floats:
    """Median over days at each time of day, then a circular mean over `smooth` of them (an odd number)."""
    usual = _median(days)
    known = np.flatnonzero(~np.isnan(usual))
    if len(known) == 0:
        return np.zeros(len(usual))
    usual = np.interp(np.arange(len(usual)), known, usual[known], period=len(usual))
    around = np.take(usual, np.arange(-(smooth // 2), len(usual) + smooth // 2), mode="wrap")
    return np.convolve(around, np.full(smooth, 1 / smooth), "valid")


def _spacing(times: Floats, spans: Sequence[Span]) -> float:
    """Median time from row to row."""
    steps = [np.diff(times[first:end]) for first, end in spans if end - first > 1]
    return float(np.median(np.concatenate(steps))) if steps else DAY_S


def _lay_out(
    times: Floats, spans: Sequence[Span], bins: int, offset: float
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64], NDArray[np.bool_]]:
    """Rows used and their cells (day, bin); of each day its series, and whether it is full.

    Days begin with the first row of a series. Only series with enough full days count: a profile must not be that of
    a few series that ran for an afternoon.
    """
    rows, cells, series, full = [np.empty(0, np.int64)], [np.empty(0, np.int64)], [], []
    done = 0
    for number, (first, end) in enumerate(spans):
        if end == first:
            continue
        slots = np.floor((times[first:end] - offset) * (bins / DAY_S) + 0.5).astype(np.int64)
        _, day = np.unique((slots - slots[0]) // bins, return_inverse=True)
        cell = day * bins + slots % bins
        is_full = (np.bincount(np.unique(cell) // bins) >= FULL_DAY * bins).tolist()
        if slots[-1] - slots[0] + 1 < LEAST_DAYS * bins or sum(is_full) < LEAST_DAYS:
            continue
        rows.append(np.arange(first, end))
        cells.append(cell + done * bins)
        series += [number] * len(is_full)
        full += is_full
        done += len(is_full)
    return np.concatenate(rows), np.concatenate(cells), np.array(series, np.int64), np.array(full, np.bool_)


def _explained(left: Floats, all_: Floats) -> float:
    before = float(np.nanmean(np.square(all_)))
    return 1 - float(np.nanmean(np.square(left))) / before if before > 0 else 0.0


def _median(rows: Floats) -> Floats:
    """Over the first axis, NaN left out; NaN where there is nothing. np.nanmedian is slow for few rows."""
    ordered = np.sort(rows, axis=0)  # NaN last
    known = (~np.isnan(rows)).sum(axis=0)
    at = np.arange(rows.shape[1])
    found: Floats = (
        ordered[np.maximum(known - 1, 0) // 2, at] + ordered[np.minimum(known // 2, len(rows) - 1), at]
    ) / 2
    return found


def _centred(profile: Floats) -> list[float]:
    centred: list[float] = (profile - profile.mean()).tolist()
    return centred
