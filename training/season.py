"""Finds the season of training rows: features whose profile by time of day or week explains days held out."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from at_infer.config import SeasonChoice
from at_infer.errors import DataError
from at_infer.models.season import DAY_S, WEEK_S, Season
from at_infer.tables import Table
from training.scaling import Span

BIN_S = 300.0  # finer is noise: the profile is a mean over SMOOTH_S anyway
SMOOTH_S = 900.0
LEAST_BINS = 4
LEAST_DAYS = 3
LEAST_WEEKS = 2
LEAST_SHARE = 0.25  # of the variance, in both tests; random walks stay below it
FULL = 0.75  # share of the bins of a day, or of a week, that have a row
MOST_PERIODS = 60  # that the tests look at

Floats = NDArray[np.float64]
Profile = Callable[[Floats, int], Floats]


class NoSeasonError(ValueError):
    """The rows cannot show a season; the message says why."""


class Chosen(NamedTuple):
    """Features that get a profile without any test."""

    daily: Sequence[int]
    weekly: Sequence[int]


def choose_season(
    table: Table, train_spans: Sequence[Span], choice: SeasonChoice, known: Season | None
) -> tuple[Season | None, str]:
    """The season of the training part, and one line that says which, or why there is none.

    `known` is that of weights to start from: they need the same columns, with a new profile if the rows suffice.
    """
    if choice == "none":
        return None, "none, as requested"
    count = len(table.columns)
    everything = range(count)
    chosen = {"1d": Chosen(everything, ()), "1w": Chosen((), everything)}.get(choice)
    if chosen is None and known is not None:
        chosen = Chosen([j for j in known.features if j not in known.weekly], known.weekly)
    try:
        if table.seconds is None:
            raise NoSeasonError("no time column with dates and times")
        season = find_season(table.values, table.seconds, train_spans, chosen)
    except NoSeasonError as error:
        if chosen is None:
            return None, f"none ({error})"
        if known is not None and table.seconds is not None:
            return known, f"that of the earlier weights ({error})"
        least = f"{LEAST_WEEKS} full weeks" if chosen.weekly else f"{LEAST_DAYS} full days"
        raise DataError(
            f"{table.source}: {error}; a season needs `time_column` with dates and times and {least} of "
            f"training rows; or pass season='none'"
        ) from None
    if season is None:
        return None, "none (no column has a daily or weekly cycle that later days repeat)"
    weekly = f", {len(season.weekly)} of them by day of the week" if season.weekly else ""
    return season, f"24 h profile of {len(season.features)} of {count} columns{weekly}"


def subtract_season(table: Table, season: Season) -> None:
    """In place, before gaps are filled: a gap repeats a deviation from the season."""
    if table.seconds is None:
        raise DataError(f"{table.source}: has no time column with dates and times, unlike the training part")
    season.subtract(table.values, table.seconds)


def find_season(
    values: NDArray[np.float32], times: Floats, spans: Sequence[Span], chosen: Chosen | None = None
) -> Season | None:
    """The profiles of the features that pass both tests, or of the chosen ones; None if there are none.

    A feature has a weekly profile if it passes the tests with what its daily one, if it has one, leaves.
    """
    spacing = _spacing(times, spans)
    bins = round(DAY_S / max(spacing, BIN_S))
    if bins < LEAST_BINS:
        raise NoSeasonError(f"rows are {spacing / 3600:.3g} h apart")
    width = DAY_S / bins
    smooth = 2 * int(SMOOTH_S / width / 2) + 1
    offset = float(times[spans[0][0]] % width)
    slots = np.floor((times - offset) / width + 0.5).astype(np.int64)
    by_day, by_week = _Grid.lay_out(slots, spans, bins, LEAST_DAYS), _Grid.lay_out(slots, spans, 7 * bins, LEAST_WEEKS)
    if chosen is not None and chosen.weekly and not by_week.full.any():
        raise NoSeasonError(f"fewer than {LEAST_WEEKS} full weeks of training rows")
    if not by_day.full.any():
        raise NoSeasonError(f"fewer than {LEAST_DAYS} full days of training rows")
    profile: list[list[float]] = []
    for j in range(values.shape[1]):
        days, full = by_day.means(values[:, j])
        daily = (
            has_season(days[full], by_day.series[full], smooth, profile_of, LEAST_DAYS)
            if chosen is None
            else j in chosen.daily
        )
        usual = profile_of(days, smooth) if daily else np.zeros(bins)
        weeks, full = by_week.means(values[:, j])
        left, series = weeks[full] - np.tile(usual, 7), by_week.series[full]
        weekly = has_season(left, series, smooth, week_of, LEAST_WEEKS) if chosen is None else j in chosen.weekly
        if weekly:
            usual = week_of(weeks, smooth)
        profile.append(_centred(usual) if daily or weekly else [])
    if not any(profile):
        return None
    period_s = WEEK_S if max(map(len, profile)) > bins else DAY_S
    return Season(period_s=period_s, offset_s=offset, profile=profile)


def has_season(days: Floats, series: NDArray[np.int64], smooth: int, profile: Profile, least: int) -> bool:
    """(days, bins) of full days, or weeks, in order, and the series of each: do both held-out tests find a season?"""
    held = np.zeros(len(days), np.bool_)
    for name in np.unique(series):
        own = np.flatnonzero(series == name)
        held[own[-max(1, len(own) // 4) :]] = True
    if len(days) < least or held.all():
        return False
    later = later_days(days[~held], days[held], lambda of: profile(of, smooth))
    return later > LEAST_SHARE and other_days(days, lambda of: profile(of, 1)) > LEAST_SHARE


def later_days(earlier: Floats, later: Floats, profile: Callable[[Floats], Floats]) -> float:
    """Share of the variance of later days, around the median of the earlier ones, that their profile explains."""
    left, all_ = later - profile(earlier), later - _median(earlier.reshape(-1, 1))
    return _explained(left, all_)


def other_days(days: Floats, profile: Callable[[Floats], Floats]) -> float:
    """Median over days: share of a day's shape that the profile of the other days' shapes explains."""
    chosen = days[np.unique(np.linspace(0, len(days) - 1, min(len(days), MOST_PERIODS)).astype(int))]
    shapes = chosen - np.nanmean(chosen, axis=1, keepdims=True)
    shares = []
    for i, shape in enumerate(shapes):
        usual = profile(np.delete(shapes, i, axis=0))
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


def week_of(weeks: Floats, smooth: int) -> Floats:
    """Two profiles by time of day: one for the rest of the week, one for the day or two that differ most from it.

    They may begin at any hour, as a weekend does in UTC. Seven profiles would be of a few days each.
    """
    days = weeks.reshape(-1, weeks.shape[1] // 7)
    free = free_days(_median(weeks).reshape(7, -1))
    is_free = np.tile(free, (len(weeks), 1))
    two = [profile_of(np.where(own, days, np.nan), smooth) for own in (is_free, ~is_free)]
    return np.where(free, *two).ravel()


def free_days(week: Floats) -> NDArray[np.bool_]:
    """(7, bins) of a usual week: the 24 or 48 hours in a row, from any full hour, that two profiles tell apart best."""
    bins = week.shape[1]
    known = np.nan_to_num(week - np.nanmean(week)) if np.isfinite(week).any() else np.zeros_like(week)
    total, best, found = known.sum(axis=0), -np.inf, np.zeros((7, bins), np.bool_)
    for first in np.unique(np.arange(7 * 24) * bins // 24):
        for days in (1, 2):  # every time of day is in it so many times
            free = ((np.arange(7 * bins) - first) % (7 * bins) < days * bins).reshape(7, bins)
            inside = np.where(free, known, 0).sum(axis=0)
            explained = float((inside**2 / days + (total - inside) ** 2 / (7 - days)).sum())
            if explained > best:
                best, found = explained, free
    return found


def _spacing(times: Floats, spans: Sequence[Span]) -> float:
    """Median time from row to row."""
    steps = [np.diff(times[first:end]) for first, end in spans if end - first > 1]
    return float(np.median(np.concatenate(steps))) if steps else DAY_S


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


class _Grid(NamedTuple):
    """Rows by day, or week, and by bin of it."""

    rows: NDArray[np.int64]
    """Those used."""
    cells: NDArray[np.int64]
    """Of each row used: day times bins plus bin."""
    series: NDArray[np.int64]
    """Of each day."""
    full: NDArray[np.bool_]
    """Of each day: has it enough rows?"""
    bins: int

    @classmethod
    def lay_out(cls, slots: NDArray[np.int64], spans: Sequence[Span], bins: int, least: int) -> "_Grid":
        """Days begin with the first row of a series. `slots` number the bins since 1970, one of each row.

        Only series with enough full days count: a profile must not be that of a few series that ran for an afternoon.
        """
        rows, cells, series, full = [np.empty(0, np.int64)], [np.empty(0, np.int64)], [], []
        done = 0
        for number, (first, end) in enumerate(spans):
            if end == first:
                continue
            own = slots[first:end]
            _, day = np.unique((own - own[0]) // bins, return_inverse=True)
            cell = day * bins + own % bins
            is_full = (np.bincount(np.unique(cell) // bins) >= FULL * bins).tolist()
            if own[-1] - own[0] + 1 < least * bins or sum(is_full) < least:
                continue
            rows.append(np.arange(first, end))
            cells.append(cell + done * bins)
            series += [number] * len(is_full)
            full += is_full
            done += len(is_full)
        whole = np.array(full, np.bool_)
        return cls(np.concatenate(rows), np.concatenate(cells), np.array(series, np.int64), whole, bins)

    def means(self, values: NDArray[np.float32]) -> tuple[Floats, NDArray[np.bool_]]:
        """(days, bins) of one feature, NaN where nothing is known, and which days are full."""
        column = values[self.rows]
        known = ~np.isnan(column)
        cells, size = self.cells[known], self.full.size * self.bins
        with np.errstate(invalid="ignore"):
            mean = np.bincount(cells, weights=column[known], minlength=size) / np.bincount(cells, minlength=size)
        days = mean.reshape(-1, self.bins)
        return days, self.full & ((~np.isnan(days)).mean(axis=1) >= FULL)
