"""The labelled series, by group: rows to learn from, rows to judge, and the truth about these."""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from benchmarks.quality.generated import cyclic

Floats = NDArray[np.float32]
Bools = NDArray[np.bool_]

MINUTES_A_DAY = 1440
UCR_ROWS = 15_000
"""At most so many rows of a UCR test part, around the anomaly."""


class Group(NamedTuple):
    """Series that are averaged together."""

    folder: str
    channels: tuple[str, ...] = ()
    """Empty: all that have a label."""
    every: int = 1
    """Only every K-th of them."""
    columns: tuple[str, ...] = ()
    """Empty: all. Of MSL and SMAP only f00 is telemetry, the others are commands to the spacecraft."""
    rows_a_day: int = MINUTES_A_DAY
    """A row a minute where nothing is known."""
    clock: bool = False
    """The spacing of the rows is known, and the test part follows the training part at once."""


GROUPS = {
    "ASD": Group("asd", rows_a_day=288, clock=True),
    "MSL": Group("msl", columns=("f00",)),
    "SMAP": Group("smap", columns=("f00",)),
    "SMD a": Group("smd", tuple(f"machine-{m}" for m in ("1-2", "1-6", "2-1", "3-4")), clock=True),
    "SMD b": Group("smd", tuple(f"machine-{m}" for m in ("1-3", "2-4", "3-5", "3-10")), clock=True),
    "wsd": Group("wsd", every=3),
    "ucr": Group("ucr", every=8),
    "cyclic": Group("", clock=True),
}


class Series(NamedTuple):
    """One series; tables with a column `timestamp` where there is one, and features."""

    group: str
    name: str
    train: pl.DataFrame
    test: pl.DataFrame
    labels: Bools

    @property
    def options(self) -> list[str]:
        """Names of columns, as a user gives them to `at-infer train`."""
        columns = GROUPS[self.group].columns
        return [
            *(["--time-column", "timestamp"] if "timestamp" in self.train.columns else []),
            *(["--columns", ",".join(columns)] if columns else []),
        ]

    def rows(self, *, learnt: bool = True) -> tuple[Floats, Floats]:
        """Training and test part (n,F); all features, or those that the network sees."""
        columns = GROUPS[self.group].columns if learnt else ()
        names = list(columns) or [name for name in self.train.columns if name != "timestamp"]
        train, test = (table.select(names).to_numpy().astype(np.float32) for table in (self.train, self.test))
        return train, test


def load(data: Path, group: str) -> Iterator[Series]:
    """The series of a group that have rows of both kinds in their test part."""
    wanted = GROUPS[group]
    if group == "cyclic":
        yield from (Series(group, *one) for one in cyclic())
    elif group == "ucr":
        yield from _ucr(data / wanted.folder, wanted.every)
    else:
        yield from _channels(data / wanted.folder, group)


def _channels(folder: Path, group: str) -> Iterator[Series]:
    wanted = GROUPS[group]
    train, test = (pl.read_parquet(folder / f"{part}.parquet") for part in ("train", "test"))
    labelled = test.group_by("channel", maintain_order=True).agg(pl.col("label").mean().is_between(0, 1, closed="none"))
    names = labelled.filter("label")["channel"].to_list()
    for name in (wanted.channels or names)[:: wanted.every]:
        of_train, of_test = (table.filter(pl.col("channel") == name).drop("channel") for table in (train, test))
        labels = of_test["label"].to_numpy().astype(np.bool_)
        yield Series(group, name, of_train, of_test.drop("label"), labels)


def _ucr(folder: Path, every: int) -> Iterator[Series]:
    for name, end, begin_fault, end_fault, rows in pl.read_csv(folder / "metadata.csv").sort("name").rows()[::every]:
        table = pl.read_parquet(folder / f"{name}.parquet")
        middle = (begin_fault + end_fault) // 2
        first = max(end, min(middle - UCR_ROWS // 2, rows - UCR_ROWS))
        labels = np.zeros(rows, np.bool_)
        labels[begin_fault:end_fault] = True
        last = min(rows, first + UCR_ROWS)
        yield Series("ucr", name, table[:end], table[first:last], labels[first:last])
