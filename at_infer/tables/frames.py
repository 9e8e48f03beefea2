"""Tables in memory: of any library that speaks the Arrow C stream, by column name, and given back with more columns."""

from collections.abc import Collection, Mapping
from typing import Any, Protocol

import numpy as np
import polars as pl
from numpy.typing import NDArray

from at_infer.errors import DataError
from at_infer.tables.files import InputFile
from at_infer.tables.parts import scored_frame

Frame = pl.DataFrame

WHERE = "table"
"""What messages call a table in memory."""


class ArrowTable(Protocol):
    """A table of polars, pandas, pyarrow, DuckDB and others."""

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        """https://arrow.apache.org/docs/format/CDataInterface/PyCapsuleInterface.html."""


def is_table(given: object) -> bool:
    """Does it have named columns? An array has none."""
    return isinstance(given, pl.LazyFrame) or _is_pandas(given) or hasattr(given, "__arrow_c_stream__")


def read_frame(given: object, index: Collection[str] = ()) -> pl.DataFrame:
    """The columns of a table; of a pandas frame also the levels of its index that are asked for by name."""
    try:
        if isinstance(given, pl.LazyFrame):
            return given.collect()
        if isinstance(given, pl.DataFrame):
            return given
        if _is_pandas(given):
            return _read_pandas(given, index)
        found = pl.from_arrow(given)
    except DataError:
        raise
    except (pl.exceptions.PolarsError, TypeError, ValueError) as error:
        raise DataError(f"{WHERE}: cannot be read ({error}); give columns of plain values") from None
    if isinstance(found, pl.Series):  # DuckDB streams structs
        return found.struct.unnest() if found.dtype == pl.Struct else found.to_frame()
    return found


def as_file(frame: pl.DataFrame, where: str = WHERE) -> InputFile:
    """A frame as an input file: it is read, checked and complained about in the same way."""
    return InputFile(where, frame.lazy(), frame.schema, frame.height)


def give_back(given: object, frame: pl.DataFrame, columns: Mapping[str, NDArray[Any]]) -> Any:
    """The input with columns added: pandas (with its index) and pyarrow as such, everything else as polars."""
    for name in columns:
        if name in frame.columns:
            raise DataError(f"{WHERE}: column {name!r} is there already; rename or drop it")
    if _is_pandas(given):
        return given.assign(**columns)  # type: ignore[attr-defined]
    scored = scored_frame(frame if frame.width else pl.DataFrame({"score": columns["score"]}), columns)
    if type(given).__module__.startswith("pyarrow") and hasattr(given, "append_column"):
        for name in columns:
            given = given.append_column(name, scored[name].to_arrow())
        return given
    return scored


def no_rows(given: object) -> object:
    """The same kind of table without its rows."""
    if _is_pandas(given):
        return given.iloc[:0]  # type: ignore[attr-defined]
    return given.slice(0, 0) if hasattr(given, "append_column") else given  # type: ignore[attr-defined]


def array_values(given: Any, where: str = "rows") -> NDArray[np.float32]:
    """An array or nested lists as numbers of their own, which may be changed."""
    if hasattr(given, "nnz"):
        raise DataError(f"{where}: sparse data are not supported; give a dense array, such as X.toarray()")
    try:
        with np.errstate(over="ignore"):  # what is too large is found later
            found = np.asarray(given)
            if found.dtype.kind == "c":
                raise DataError(f"{where}: Complex data not supported; give real numbers")
            return np.array(found, np.float32)
    except DataError:
        raise
    except (TypeError, ValueError) as error:
        raise DataError(f"{where}: are not numbers ({error}); give an array, or a table with names") from None


def array_frame(values: NDArray[np.float32], names: Collection[str]) -> pl.DataFrame:
    """An array (rows, F) with names for its columns."""
    return pl.DataFrame(values, schema=list(names), orient="row")


def _is_pandas(given: object) -> bool:
    kind = type(given)
    return kind.__module__.split(".")[0] == "pandas" and kind.__name__ == "DataFrame"


def _read_pandas(given: Any, index: Collection[str]) -> pl.DataFrame:
    """By numpy: its Arrow stream needs pyarrow, which many who have pandas do not have."""
    if not given.columns.is_unique:
        raise DataError(f"{WHERE}: two columns have the same name; rename one of them")
    columns = {str(name): given[name] for name in given.columns}
    for level in given.index.names:
        if level is not None and str(level) in index and str(level) not in columns:
            columns[str(level)] = given.index.get_level_values(level).to_series()
    return pl.DataFrame([_read_pandas_column(name, column) for name, column in columns.items()])


def _read_pandas_column(name: str, column: Any) -> pl.Series:
    zone = getattr(column.dtype, "tz", None)
    if zone is not None:
        instants = column.dt.tz_convert("UTC").dt.tz_localize(None).to_numpy()
        return pl.Series(name, instants).dt.replace_time_zone("UTC").dt.convert_time_zone(str(zone))
    values = column.to_numpy()
    if values.dtype.kind == "M" and values.dtype.name not in ("datetime64[ms]", "datetime64[us]", "datetime64[ns]"):
        values = values.astype("datetime64[us]")
    if values.dtype.kind in "biufMm":
        return pl.Series(name, values)
    plain = [None if missing else value for value, missing in zip(column.tolist(), column.isna(), strict=True)]
    return pl.Series(name, plain, strict=False)
