"""Lines to rows: JSON objects or CSV, features found by name, everything odd refused with its reason."""

import csv
import json
import sys
from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Any, NamedTuple

from at_infer.choices import RowFormat
from at_infer.errors import ConfigError, DataError
from at_infer.untrusted import is_unicode

LONGEST_KEY = 1000
"""Characters of the name of a series, and of a time: ten thousand of them stay in memory."""
_NUMBERS = {float, int, bool, type(None)}
_CSV_WORDS = {"": None, "true": True, "false": False}
_decode = json.JSONDecoder().decode


class Row(NamedTuple):
    """A parsed line."""

    values: Sequence[float | None]
    """In the order of the model's columns; None is missing."""
    series: Any
    """None if there is no series column."""
    time: Any
    """None if there is no time column."""


class MissingColumnError(DataError):
    """A row in JSON without a column that the model needs, and the series it says it belongs to."""

    def __init__(self, message: str, series: Any) -> None:
        super().__init__(message)
        self.series = series


class RowReader:
    """Reads the lines of one file after the other."""

    def __init__(
        self,
        columns: Sequence[str],
        *,
        time_column: str | None = None,
        series_column: str | None = None,
        format: RowFormat = "auto",  # noqa: A002 - the option's name
        header: Sequence[str] | None = None,
        may_be_absent: bool = False,
    ) -> None:
        self.columns = tuple(columns)
        self.time_column, self.series_column, self.format = time_column, series_column, format
        keys = [key for key in (series_column, time_column) if key is not None]
        if len(set(keys)) < len(keys):
            raise ConfigError(f"column {keys[0]!r}: cannot be the time and the series column at once")
        self.needed, self.may_be_absent = [*([] if may_be_absent else self.columns), *keys], may_be_absent
        self.given_header = None if header is None else list(header)
        if self.given_header is not None:
            if format == "json":
                raise ConfigError("header: rows in JSON name their own columns; leave `header` out")
            try:
                self._check_header(self.given_header)
            except DataError as error:
                raise ConfigError(f"header: {error}; name every column of a line") from None
        self._of_record = self._present if may_be_absent else _getter(self.columns)
        self.start()

    def start(self) -> None:
        """A file begins: its first line tells what it is."""
        self._read: Callable[[str], Row | str | None] = self._json if self.format == "json" else self._first
        if self.given_header is not None:
            self._use_header(self.given_header)
            self._read = self._csv

    def read(self, line: bytes | None) -> Row | str | None:
        """A row, None for an empty line or a header, a note for a header that changes the columns.

        Raises `DataError` for a line that is none of these.
        """
        if line is None:
            raise DataError("is too long")
        try:
            text = line.decode().lstrip("\ufeff").rstrip("\r")
        except UnicodeDecodeError:
            raise DataError("is not UTF-8") from None
        return None if not text or text.isspace() else self._read(text)

    def _first(self, text: str) -> Row | None:
        """JSON objects, or a CSV header."""
        if self.format == "auto" and text.lstrip()[0] == "{":
            self._read = self._json
            return self._json(text)
        self._begin(_split(text))
        return None

    def _begin(self, fields: list[str]) -> None:
        """The fields should be a CSV header."""
        try:
            self._check_header(fields)
        except DataError as error:
            what = "a CSV header" if self.format == "csv" else "a JSON object, nor a CSV header"
            raise DataError(f"is not {what} ({error})") from None
        self._use_header(fields)
        self._read = self._csv

    def _json(self, text: str) -> Row:
        try:
            record = _decode(text)
        except json.JSONDecodeError as error:
            raise DataError(f"is not JSON ({error.msg}, character {error.colno})") from None
        except (ValueError, RecursionError) as error:  # a number of thousands of digits, thousands of brackets
            raise DataError(f"is not JSON that can be read ({error})") from None
        if type(record) is not dict:
            raise DataError("is not a JSON object")
        try:
            values = self._of_record(record)
            time = None if self.time_column is None else record[self.time_column]
            series = None if self.series_column is None else record[self.series_column]
        except KeyError as error:
            series = record.get(self.series_column) if self.series_column is not None else None
            raise MissingColumnError(self._missing(error.args[0], list(record)), series) from None
        if not _NUMBERS.issuperset(map(type, values)):
            j = next(j for j, value in enumerate(values) if type(value) not in _NUMBERS)
            raise DataError(f"column {self.columns[j]!r} is {_quoted(values[j])}, not a number")
        self._check_key(self.time_column, time)
        self._check_key(self.series_column, series)
        return Row(values, series, time)

    def _present(self, record: dict[str, Any]) -> tuple[Any, ...]:
        """Columns of a record, those that are absent as None, but for all of them."""
        if not any(name in record for name in self.columns):
            raise KeyError(self.columns[0])
        return tuple(record.get(name) for name in self.columns)

    def _csv(self, text: str) -> Row | str | None:
        fields = _split(text)
        if len(fields) != len(self._header):
            if self._is_header(fields):
                return self._next_header(fields)
            raise DataError(f"has {len(fields)} fields, the header names {len(self._header)}")
        texts = self._of_fields(fields)
        try:
            values: list[float | None] = list(map(float, texts))
            plain = "_" not in text  # Python reads 1_000 as a number, nobody else does
        except ValueError:
            if self._is_header(fields):
                return self._next_header(fields)
            plain = False
        if not plain:
            values = [_number(name, word) for name, word in zip(self.columns, texts, strict=True)]
        time = None if self._time_at is None else fields[self._time_at]
        series = None if self._series_at is None else fields[self._series_at]
        self._check_key(self.time_column, time)
        self._check_key(self.series_column, series)
        return Row(values, series, time)

    def _is_header(self, fields: list[str]) -> bool:
        return not set(self.columns).isdisjoint(fields) and not any(map(_is_number, fields))

    def _next_header(self, fields: list[str]) -> str | None:
        """Files may be joined, headers and all; from here on the new one counts, if it can."""
        if fields == self._header:
            return None
        self._read = self._first  # the old header tells nothing of the lines below this one
        self._begin(fields)
        return f"the columns change to {_listed(fields)}"

    def _use_header(self, fields: list[str]) -> None:
        self._header = fields
        places = [fields.index(name) if name in fields else None for name in self.columns]
        self._of_fields = _getter(places) if None not in places else _getter_with_gaps(places)
        self._time_at = None if self.time_column is None else fields.index(self.time_column)
        self._series_at = None if self.series_column is None else fields.index(self.series_column)

    def _check_header(self, fields: list[str]) -> None:
        if self.may_be_absent and set(self.columns).isdisjoint(fields):
            raise DataError(self._missing(self.columns[0], fields))
        for name in self.needed:
            if name not in fields:
                raise DataError(self._missing(name, fields))
            if fields.count(name) > 1:
                raise DataError(f"column {name!r} is there twice")

    def _missing(self, name: str, found: list[str]) -> str:
        role = {self.time_column: "the time column ", self.series_column: "the series column "}.get(name, "column ")
        return f"{role}{name!r} is missing among {_listed(found)}"

    def _check_key(self, name: str | None, value: Any) -> None:
        if name is None:
            return
        if value is None or value == "" or value != value:
            raise DataError(f"column {name!r} has no value")
        if not is_key(value):
            what = f"not Unicode, or longer than {LONGEST_KEY} characters"
            raise DataError(
                f"column {name!r} is {_quoted(value)}, {what if type(value) is str else 'neither text nor a number'}"
            )


def is_key(value: Any) -> bool:
    """Can it name a series, or a time, also in a state? Half of a surrogate pair or a number beyond floats cannot."""
    if type(value) is str:
        return len(value) <= LONGEST_KEY and (value.isascii() or is_unicode(value))
    return type(value) in (int, float) and abs(value) <= sys.float_info.max


def _getter(keys: Sequence[Any]) -> Callable[[Any], tuple[Any, ...]]:
    if len(keys) == 1:
        return lambda record: (record[keys[0]],)
    return itemgetter(*keys)


def _getter_with_gaps(places: Sequence[int | None]) -> Callable[[Any], tuple[Any, ...]]:
    return lambda fields: tuple("" if at is None else fields[at] for at in places)


def _split(text: str) -> list[str]:
    if '"' not in text:
        return text.split(",")
    try:
        return next(csv.reader([text], strict=True))
    except csv.Error as error:
        raise DataError(f"is not CSV ({error})") from None


def _number(name: str, text: str) -> float | None:
    word = text.strip()
    if word in _CSV_WORDS:
        return _CSV_WORDS[word]
    try:
        return float(word.replace("_", "?"))
    except ValueError:
        raise DataError(f"column {name!r} is {_quoted(text)}, not a number") from None


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _listed(names: list[str]) -> str:
    return ", ".join(map(_quoted, names[:8])) + (", ..." if len(names) > 8 else "") if names else "no columns"


def _quoted(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:40]}..."
