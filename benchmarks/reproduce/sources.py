"""Labelled data sets, each brought to one layout: train.parquet, test.parquet and perhaps validation.parquet.

`train.parquet` has `timestamp`, `channel` and the features, `test.parquet` also `label`. MSL, SMAP, SMD and ASD may
come in that layout, UCR close to it. PSM, SWaT and SMD are read as their publishers lay them out; MSL, SMAP, SMD and
SWaT also as benchmarks pass them on (NAME_train.npy; swat_train2.csv). NeurIPS-TS is generated.
"""

import csv
from collections.abc import Callable
from pathlib import Path
from typing import TextIO

import numpy as np
import polars as pl
from numpy.typing import NDArray

from at_infer.datasets import generate
from at_infer.errors import DataError
from at_infer.output import atomic_path

KEYS = ("timestamp", "channel")
LAID_OUT = ("msl", "smap", "smd", "asd")
ARRAYS = ("msl", "smap", "smd")
"""Passed on as one array per part, with the channels one after another."""
SWAT_PASSED_ON = ("swat_train2.csv", "swat2.csv")
SWAT_FILES = (
    ("SWaT_Dataset_Normal_v1.csv", "SWaT_Dataset_Attack_v0.csv"),
    ("SWaT_Dataset_Normal_v0.csv", "SWaT_Dataset_Attack_v0.csv"),
)
"""v1 has the 495,000 rows that the paper counts; v0 begins half an hour earlier."""
SWAT_STATE = "Normal/Attack"


def names(data: Path) -> list[str]:
    """All data sets that can be asked for, without the series of UCR."""
    there = [name for name in (*LAID_OUT, "psm", "swat") if (data / name).is_dir()]
    return [*there, "generated"]


def prepare(name: str, data: Path, work: Path) -> Path:
    """The folder of a data set; what needs converting is converted once, into `work`."""
    if name in LAID_OUT and not _as_published(name, data / name):
        folder = data / name
        for part in ("train", "test"):
            if not (folder / f"{part}.parquet").is_file():
                raise DataError(f"{folder}: has no {part}.parquet; give the folder that holds {name}/ as --data")
        return folder
    folder = work / "data" / name
    if (folder / "test.parquet").exists():  # written last
        return folder
    kind, _, series = name.partition("/")
    if kind not in _CONVERSIONS or (kind == "ucr") != bool(series):
        known = ", ".join((*LAID_OUT, "psm", "swat", "generated"))
        raise DataError(f"{name}: is not a data set; choose from {known} or ucr/NAME")
    folder.mkdir(parents=True, exist_ok=True)
    for part, frame in _CONVERSIONS[kind](data / kind, series).items():
        with atomic_path(folder / f"{part}.parquet") as temporary:
            frame.write_parquet(temporary)
    return folder


def _as_published(name: str, folder: Path) -> bool:
    """Not in this project's layout, but in one of those that are converted."""
    if (folder / "train.parquet").is_file():
        return False
    arrays = name in ARRAYS and _array_path(folder, "train").is_file()
    return arrays or (name == "smd" and (folder / "train").is_dir())


def ucr_series(data: Path) -> list[str]:
    """Names of the series of the archive, in its order."""
    return [row["name"] for row in _ucr_metadata(data / "ucr")]


def laid_out(values: NDArray[np.float32], columns: list[str], channel: str) -> pl.DataFrame:
    """Rows of one channel with the key columns in front."""
    frame = pl.DataFrame(values, schema=columns, orient="row")
    return frame.select(pl.int_range(pl.len()).alias("timestamp"), pl.lit(channel).alias("channel"), pl.all())


def _psm(folder: Path, _: str) -> dict[str, pl.DataFrame]:
    """train.csv, test.csv, test_label.csv; the first column is the time. Missing values become 0, as published."""
    train, test, labels = (_read_csv(folder / f"{part}.csv") for part in ("train", "test", "test_label"))
    if labels.height != test.height:
        raise DataError(f"{folder}: test_label.csv has {labels.height} rows, test.csv {test.height}; fetch both again")
    columns = train.columns[1:]
    frames = {}
    for part, frame in (("train", train), ("test", test)):
        values = _numbers(frame.select(columns), folder / f"{part}.csv")
        frames[part] = laid_out(np.nan_to_num(values, posinf=np.inf, neginf=-np.inf), columns, "psm")
    frames["test"] = frames["test"].with_columns(label=labels[labels.columns[-1]].cast(pl.UInt8))
    return frames


def _smd(folder: Path, _: str) -> dict[str, pl.DataFrame]:
    """train/, test/ and test_label/ with a machine-G-N.txt per machine, values separated by commas, without names."""
    frames: dict[str, list[pl.DataFrame]] = {"train": [], "test": []}
    for path in sorted((folder / "train").glob("machine-*.txt"), key=lambda p: [int(n) for n in p.stem.split("-")[1:]]):
        for part, kept in frames.items():
            values = _numbers(_read_csv(folder / part / path.name, named=False), folder / part / path.name)
            kept.append(laid_out(values, [f"f{i:02}" for i in range(values.shape[1])], path.stem))
        labels = _read_csv(folder / "test_label" / path.name, named=False).to_series()
        if len(labels) != frames["test"][-1].height:
            raise DataError(
                f"{folder / 'test_label' / path.name}: has {len(labels)} rows, the test part "
                f"{frames['test'][-1].height}; fetch both again"
            )
        frames["test"][-1] = frames["test"][-1].with_columns(label=labels.cast(pl.UInt8))
    if not frames["train"]:
        raise DataError(f"{folder / 'train'}: has no machine-*.txt; fetch the publishers' ServerMachineDataset")
    return {part: pl.concat(kept) for part, kept in frames.items()}


def _arrays(folder: Path, _: str) -> dict[str, pl.DataFrame]:
    """NAME_train.npy, NAME_test.npy, NAME_test_label.npy: all channels as one, as nothing says where they change."""
    train, test, labels = (_read_array(_array_path(folder, part)) for part in ("train", "test", "test_label"))
    if len(labels) != len(test):
        raise DataError(f"{folder}: has {len(labels)} labels of {len(test)} test rows; fetch both again")
    columns = [f"f{i:02}" for i in range(train.shape[1])]
    made = {part: laid_out(rows, columns, folder.name) for part, rows in (("train", train), ("test", test))}
    made["test"] = made["test"].with_columns(label=pl.Series((labels.reshape(-1) > 0).astype(np.uint8)))
    return made


def _array_path(folder: Path, part: str) -> Path:
    return folder / f"{folder.name.upper()}_{part}.npy"


def _read_array(path: Path) -> NDArray[np.float32]:
    try:
        found: NDArray[np.float32] = np.load(path, allow_pickle=False).astype(np.float32)
    except (OSError, ValueError) as error:
        raise DataError(f"{path}: is not a NumPy file of numbers ({str(error).splitlines()[0]})") from None
    return found


def _smd_any(folder: Path, series: str) -> dict[str, pl.DataFrame]:
    return _smd(folder, series) if (folder / "train").is_dir() else _arrays(folder, series)


def _swat(folder: Path, _: str) -> dict[str, pl.DataFrame]:
    """The two sheets of the publishers saved as CSV, with commas or semicolons; or the files that benchmarks pass on.

    A line of plant stages may stand above the names. The state of a row is its last column: a word, or 0 and 1.
    """
    choices = (*SWAT_FILES, SWAT_PASSED_ON)
    files = next((pair for pair in choices if (folder / pair[0]).exists()), SWAT_FILES[0])
    frames = {}
    for part, file in zip(("train", "test"), files, strict=True):
        above = 0 if files == SWAT_PASSED_ON else _lines_above(folder / file)
        frame = _read_csv(folder / file, skip=above)
        frame = frame.rename({name: name.strip() for name in frame.columns})
        state = frame.columns[-1] if files == SWAT_PASSED_ON else SWAT_STATE
        columns = [name for name in frame.columns if name not in ("Timestamp", state)]
        frames[part] = laid_out(_numbers(frame.select(columns), folder / file), columns, "swat")
        if part == "test":
            frames[part] = frames[part].with_columns(label=_attacked(frame[state], folder / file))
    return frames


def _attacked(states: pl.Series, path: Path) -> pl.Series:
    """0 or 1 for every row; some rows of the publishers say "A ttack"."""
    words = states.cast(pl.String).str.replace_all(" ", "")
    known = {"Normal": 0, "Attack": 1, "0": 0, "1": 1, "0.0": 0, "1.0": 1}
    unknown = words.filter(~words.is_in(list(known)) | words.is_null())
    if len(unknown):
        raise DataError(f"{path}: has rows in state {unknown[0]!r}; expected Normal and Attack, or 0 and 1")
    return words.replace_strict(known, return_dtype=pl.UInt8)


def _numbers(frame: pl.DataFrame, path: Path) -> NDArray[np.float32]:
    """Of columns that hold nothing else."""
    try:
        return frame.cast(pl.Float32).to_numpy()
    except pl.exceptions.PolarsError as error:
        raise DataError(f"{path}: has values that are not numbers ({str(error).splitlines()[0]})") from None


def _lines_above(path: Path) -> int:
    """Lines before the one with the names of the columns."""
    with _opened(path) as lines:
        for number, line in enumerate(lines):
            if SWAT_STATE in line:
                return number
            if number == 10:
                break
    raise DataError(f"{path}: has no column {SWAT_STATE!r}; save the publishers' sheet as it is")


def _ucr(folder: Path, series: str) -> dict[str, pl.DataFrame]:
    """One series: rows up to `train_end` to learn from, the rest with its one anomaly to judge."""
    found = next((row for row in _ucr_metadata(folder) if row["name"] == series), None)
    if found is None:
        raise DataError(f"{folder / 'metadata.csv'}: has no series {series!r}; see its column name")
    values = pl.read_parquet(folder / f"{series}.parquet")["value"].cast(pl.Float32).to_numpy()
    cut, start, end = (int(found[name]) for name in ("train_end", "anomaly_start", "anomaly_end"))
    row = np.arange(cut, len(values))
    test = laid_out(values[cut:, None], ["value"], series)
    return {
        "train": laid_out(values[:cut, None], ["value"], series),
        "test": test.with_columns(label=pl.Series(((row >= start) & (row < end)).astype(np.uint8))),
    }


def _ucr_metadata(folder: Path) -> list[dict[str, str]]:
    with _opened(folder / "metadata.csv") as lines:
        return list(csv.DictReader(lines))


def _generated(_: Path, __: str) -> dict[str, pl.DataFrame]:
    """The sizes and the anomalous share that the paper gives for NeurIPS-TS; a validation part of its own."""
    frames = {}
    for part, made in generate().items():
        frame = laid_out(made.values, ["value"], "generated")
        frames[part] = frame.with_columns(label=pl.Series(made.labels)) if part == "test" else frame
    return frames


_CONVERSIONS: dict[str, Callable[[Path, str], dict[str, pl.DataFrame]]] = {
    "psm": _psm,
    "msl": _arrays,
    "smap": _arrays,
    "smd": _smd_any,
    "swat": _swat,
    "ucr": _ucr,
    "generated": _generated,
}


def _opened(path: Path) -> TextIO:
    try:
        return path.open(newline="", encoding="utf-8")
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror}); see --help for the layout of --data") from None


def _read_csv(path: Path, skip: int = 0, *, named: bool = True) -> pl.DataFrame:
    with _opened(path) as lines:
        first = next((line for i, line in enumerate(lines) if i == skip), "")
    tabulated = first.count(";") > first.count(",")  # saved where the comma is in the numbers
    by = ";" if tabulated else ","
    try:
        return pl.read_csv(
            path, skip_rows=skip, infer_schema_length=None, has_header=named, separator=by, decimal_comma=tabulated
        )
    except pl.exceptions.PolarsError as error:
        raise DataError(f"{path}: is not a CSV file of this layout ({str(error).splitlines()[0]})") from None
