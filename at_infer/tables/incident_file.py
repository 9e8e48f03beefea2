"""A file of incidents: Parquet with times of the type that the scores have, or JSON lines."""

import json
from collections.abc import Iterable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import polars as pl

from at_infer.errors import OutputError
from at_infer.output import atomic_path
from at_infer.tables.files import reading

SUFFIXES = (".parquet", ".jsonl")
TIMES = ("begin", "end", "peak")


def check_incident_file(path: Path) -> None:
    """The suffix tells the format."""
    if path.suffix not in SUFFIXES:
        raise OutputError(f"{path}: incidents are written as {' or '.join(SUFFIXES)}; choose a name with one of them")


def write_incident_file(
    path: Path, incidents: Iterable[Mapping[str, Any]], time: pl.DataType, properties: Mapping[str, str]
) -> int:
    """Write incidents, as `Incident.as_json` gives them, to a file that is complete or absent; how many there were.

    `time` is the type of the time column, or of row numbers.
    """
    check_incident_file(path)
    with atomic_path(path) as temporary:
        if path.suffix == ".jsonl":
            count = 0
            with temporary.open("w", encoding="utf-8") as file:
                for incident in incidents:
                    file.write(json.dumps(incident, allow_nan=False) + "\n")
                    count += 1
            return count
        rows = [{**one, **{name: _time(one[name], time) for name in TIMES}} for one in incidents]
        pl.DataFrame(rows, schema=_schema(time)).write_parquet(temporary, metadata=dict(properties))
        return len(rows)


def read_incident_file(path: Path) -> list[dict[str, Any]]:
    """What `write_incident_file` wrote as Parquet."""
    with reading(str(path)):
        return pl.read_parquet(path).to_dicts()


def _time(value: Any, kind: pl.DataType) -> Any:
    if kind == pl.String:
        return str(value)
    return datetime.fromisoformat(value) if kind in (pl.Date, pl.Datetime) else value


def _schema(time: pl.DataType) -> dict[str, Any]:
    cause = pl.Struct({"feature": pl.String, "share": pl.Float64, "view": pl.String})
    return {
        "kind": pl.String,
        "id": pl.String,
        "series": pl.String,
        "state": pl.String,
        **dict.fromkeys(TIMES, time),
        "duration_s": pl.Float64,
        **dict.fromkeys(("rows", "begin_row", "end_row", "peak_row"), pl.Int64),
        **dict.fromkeys(("peak_score", "threshold", "ratio"), pl.Float64),
        "causes": pl.List(cause),
    }
