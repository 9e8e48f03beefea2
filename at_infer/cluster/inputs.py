"""The files of an input, as a run on many machines knows them: where they are, how long, which series they hold."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import NamedTuple

from at_infer.choices import ShortSeries
from at_infer.cluster.splits import Offsets, SeriesSpan
from at_infer.errors import DataError
from at_infer.scoring.series import short_series_message
from at_infer.tables.columns import Columns, Place, Survey


@dataclass(slots=True)
class FoundSeries:
    """The input as a whole."""

    offsets: Offsets
    """Files that cannot be used count as empty."""
    series: list[SeriesSpan] = field(default_factory=list)
    gaps: int = 0
    """In time: a series with gaps is several spans, all with its name."""
    empty_series: int = 0
    """Files without rows that are series of their own."""
    errors: dict[int, str] = field(default_factory=dict)
    """Files that cannot be used, and why."""


def find_series(
    places: Sequence[Place],
    surveys: Sequence[Survey | str],
    columns: Columns,
    longest_step: float | None = None,
) -> FoundSeries:
    """Put the files together; a file that does not fit is left out and said, the others stay what they are.

    A survey that is a text says why there is none. `longest_step` tells gaps between two files of one series.
    """
    errors = {number: survey for number, survey in enumerate(surveys) if isinstance(survey, str)}
    usable = [Survey(0) if isinstance(survey, str) else survey for survey in surveys]
    _compare_types(places, usable, errors)
    if not columns.keys and columns.series_per_file:
        _leave_out_rows_without_numbers(places, surveys, errors)
    if columns.series_column is not None and not columns.series_per_file:
        _leave_out_series_that_start_again(places, usable, columns.series_column, errors)
    for number in errors:
        usable[number] = Survey(0)
    found = FoundSeries(Offsets([survey.rows for survey in usable]), errors=errors)
    last_time: float | None = None
    for number, survey in enumerate(usable):
        if number in errors or (survey.rows == 0 and not columns.series_per_file):
            continue
        if survey.rows == 0:
            found.empty_series += 1
            continue
        file, first = places[number].name, int(found.offsets.offsets[number])
        runs = survey.runs or (("", 0),)
        if columns.series_per_file:
            runs = tuple((f"{file}: {name}" if survey.runs else file, row) for name, row in runs)
        is_gap = False
        if survey.span is not None:
            if longest_step is not None and last_time is not None:
                is_gap = abs(survey.span[0] - last_time) > longest_step
            last_time = survey.span[1]
        _add_runs(found, runs, survey, first, gap_before=is_gap)
    return found


class ShortSpans(NamedTuple):
    """What has no full window."""

    series: int
    stretches: int
    """Between gaps."""


def count_short(found: FoundSeries, window: int, policy: ShortSeries, source: str) -> ShortSpans:
    """Series without a single window; if there may be none, what the scorer would say of it, before any work."""
    series = stretches = 0
    for name, group in groupby(found.series, lambda span: span.name):
        rows = [span.rows for span in group]
        stretches += sum(count < window for count in rows) if len(rows) > 1 else 0
        if max(rows) < window:
            series += 1
            if policy == "error":
                raise DataError(short_series_message(name, max(rows), window, gaps=len(rows) > 1))
    if found.empty_series and policy != "skip":
        raise DataError(f"{source}: a file has no rows; pass short_series='skip'")
    return ShortSpans(series + found.empty_series, stretches)


def _add_runs(
    found: FoundSeries, runs: Sequence[tuple[str, int]], survey: Survey, first: int, *, gap_before: bool
) -> None:
    """The series of one file, cut at gaps; the first of them may go on from the file before it."""
    cuts = sorted({**dict.fromkeys(survey.gaps, ""), **{row: name for name, row in runs}}.items())
    ends = [*(row for row, _ in cuts[1:]), survey.rows]
    starts = {row for _, row in runs}
    series, name = found.series, ""
    for (row, named), end in zip(cuts, ends, strict=True):
        name = named if row in starts else name
        goes_on = row == 0 and bool(series) and series[-1].name == name
        if goes_on and not gap_before:
            series[-1] = SeriesSpan(name, series[-1].first, first + end)
        else:
            series.append(SeriesSpan(name, first + row, first + end))
            found.gaps += row not in starts or goes_on


def _compare_types(places: Sequence[Place], surveys: Sequence[Survey], errors: dict[int, str]) -> None:
    head = next((number for number, survey in enumerate(surveys) if survey.rows), None)
    if head is None:
        return
    expected = dict(surveys[head].dtypes)
    for number, survey in enumerate(surveys):
        for name, dtype in survey.dtypes:
            if dtype != expected[name]:
                errors[number] = (
                    f"{places[number].name}: column {name!r} is {dtype} but in {places[head].name} it is "
                    f"{expected[name]}; use the same type"
                )


def _leave_out_rows_without_numbers(
    places: Sequence[Place], surveys: Sequence[Survey | str], errors: dict[int, str]
) -> None:
    """The output would number the rows of the whole input, which nobody can do behind a file of unknown length."""
    unknown = next((number for number, survey in enumerate(surveys) if isinstance(survey, str)), len(places))
    for number in range(unknown + 1, len(places)):
        if number not in errors:
            errors[number] = (
                f"{places[number].name}: its rows cannot be numbered before {places[unknown].name} is mended"
            )


def _leave_out_series_that_start_again(
    places: Sequence[Place], surveys: Sequence[Survey], series_column: str, errors: dict[int, str]
) -> None:
    seen: set[str] = set()
    last: str | None = None
    for number, survey in enumerate(surveys):
        if number in errors:
            last = None
            continue
        again = [(name, row) for at, (name, row) in enumerate(survey.runs) if name in seen and (at or name != last)]
        if again:
            name, row = again[0]
            errors[number] = (
                f"{places[number].name}: row {row}: series {name!r} starts again; sort the rows by {series_column} and "
                f"time"
            )
            last = None
            continue
        if survey.runs:
            seen |= {name for name, _ in survey.runs}
            last = survey.runs[-1][0]
