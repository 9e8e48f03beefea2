"""Labelled data sets, each brought to one layout: train.parquet, test.parquet and perhaps validation.parquet.

`train.parquet` has `timestamp`, `channel` and the features, `test.parquet` also `label`. MSL, SMAP, SMD and ASD come in
that layout, UCR close to it; PSM, SWaT and, if there is no Parquet, SMD are read as their publishers lay them out;
NeurIPS-TS is generated.
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
SWAT_FILES = ("SWaT_Dataset_Normal_v1.csv", "SWaT_Dataset_Attack_v0.csv")
SWAT_STATE = "Normal/Attack"


def names(data: Path) -> list[str]:
    """All data sets that can be asked for, without the series of UCR."""
    there = [name for name in (*LAID_OUT, "psm", "swat") if (data / name).is_dir()]
    return [*there, "generated"]


def prepare(name: str, data: Path, work: Path) -> Path:
    """The folder of a data set; what needs converting is converted once, into `work`."""
    if name in LAID_OUT and not (name == "smd" and (data / "smd" / "train").is_dir()):
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
    frames = {
        part: laid_out(frame.select(columns).cast(pl.Float32).fill_null(0).fill_nan(0).to_numpy(), columns, "psm")
        for part, frame in (("train", train), ("test", test))
    }
    frames["test"] = frames["test"].with_columns(label=labels[labels.columns[-1]].cast(pl.UInt8))
    return frames


def _smd(folder: Path, _: str) -> dict[str, pl.DataFrame]:
    """train/, test/ and test_label/ with a machine-G-N.txt per machine, values separated by commas, without names."""
    frames: dict[str, list[pl.DataFrame]] = {"train": [], "test": []}
    for path in sorted((folder / "train").glob("machine-*.txt"), key=lambda p: [int(n) for n in p.stem.split("-")[1:]]):
        for part, kept in frames.items():
            values = _read_csv(folder / part / path.name, named=False).cast(pl.Float32).to_numpy()
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


def _swat(folder: Path, _: str) -> dict[str, pl.DataFrame]:
    """The two sheets of the publishers saved as CSV; a line of plant stages may stand above the names."""
    frames = {}
    for part, file in zip(("train", "test"), SWAT_FILES, strict=True):
        frame = _read_csv(folder / file, skip=_lines_above(folder / file))
        frame = frame.rename({name: name.strip() for name in frame.columns})
        if SWAT_STATE not in frame.columns:
            raise DataError(f"{folder / file}: has no column {SWAT_STATE!r}; save the publishers' sheet as it is")
        columns = [name for name in frame.columns if name not in ("Timestamp", SWAT_STATE)]
        values = frame.select(columns).cast(pl.Float32).to_numpy()
        state = frame[SWAT_STATE].str.replace_all(" ", "")  # some rows of the publishers say "A ttack"
        frames[part] = laid_out(values, columns, "swat")
        if part == "test":
            frames[part] = frames[part].with_columns(label=(state == "Attack").cast(pl.UInt8))
    return frames


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
    "smd": _smd,
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
    _opened(path).close()
    try:
        return pl.read_csv(path, skip_rows=skip, infer_schema_length=None, has_header=named)
    except pl.exceptions.PolarsError as error:
        raise DataError(f"{path}: is not a CSV file of this layout ({str(error).splitlines()[0]})") from None
