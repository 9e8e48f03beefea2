"""1 to 1000 workers on paper: list scheduling of splits over a heavy-tailed set of series, with measured costs.

Used by benchmarks/scale_out.py. Not measured, only computed: the network, the file system and a driver that is
short of memory are not in it.
"""

import heapq
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from at_infer.cluster.splits import SPLIT_S, SPLITS_PER_WORKER

Lengths = NDArray[np.int64]

TAIL = 1.1  # exponent of the Pareto distribution of series lengths: few of them hold much of all rows
LEAST_ROWS = 2_000
WORKERS = 1000
IDEALS_S = (60.0, 600.0, 3600.0)
"""Seconds of work for each worker: a short, a usual and a long run."""
SPEED_SPREAD = 0.1  # workers differ in speed by about this share


@dataclass(frozen=True, slots=True)
class Costs:
    """What was measured on real workers."""

    rows_per_s: float
    """Of one worker's engine."""
    split_overhead_s: float
    """Of a worker, for each split, whatever its length."""
    driver_s: float
    """Of the one driver, for each split."""
    halo_rows: int
    """Read and scored in addition, at each end of a piece of a cut series."""


def series_lengths(rows: float, seed: int = 0) -> Lengths:
    """Rows of each series, about `rows` in all."""
    rng = np.random.default_rng(seed)
    found: list[Lengths] = []
    left = rows
    while left > 0:
        drawn = np.minimum(LEAST_ROWS * (1 + rng.pareto(TAIL, 10_000)), rows / 4).astype(np.int64)
        upto = int(np.searchsorted(np.cumsum(drawn), left)) + 1
        found.append(drawn[:upto])
        left -= float(drawn[:upto].sum())
    return np.concatenate(found)


def split_lengths(series: Lengths, split_rows: float | None, halo_rows: int) -> Lengths:
    """Rows to score in each split, halos included; None: a series is never cut and never shared."""
    if split_rows is None:
        return series
    long = series[series > split_rows]
    counts = np.ceil(long / split_rows).astype(np.int64)
    pieces = np.repeat(np.ceil(long / counts).astype(np.int64) + 2 * halo_rows, counts)
    packed, filled = [], 0
    for rows in series[series <= split_rows].tolist():
        if filled + rows > split_rows:
            packed.append(filled)
            filled = 0
        filled += rows
    return np.concatenate([pieces, np.asarray([*packed, filled], np.int64)])


class Simulated(NamedTuple):
    """A run on paper."""

    ideal_s: float
    """Of workers that lose nothing at all."""
    makespan_s: float

    @property
    def busy(self) -> float:
        """Share of the workers' time that is spent on rows that were asked for."""
        return self.ideal_s / self.makespan_s


def simulate(series: Lengths, split_rows: float | None, workers: int, costs: Costs, seed: int = 1) -> Simulated:
    """Longest splits first, each to the worker that asks next, through one driver."""
    splits = np.sort(split_lengths(series, split_rows, costs.halo_rows))[::-1]
    speeds = np.exp(np.random.default_rng(seed).normal(0.0, SPEED_SPREAD, workers))
    ideal_s = float(series.sum()) / (costs.rows_per_s * float(speeds.sum()))
    seconds_per_row = (1.0 / (costs.rows_per_s * speeds)).tolist()
    free = [(0.0, worker) for worker in range(workers)]
    driver = 0.0
    for rows in splits.tolist():
        asked, worker = heapq.heappop(free)
        driver = max(driver, asked) + costs.driver_s
        heapq.heappush(free, (driver + costs.split_overhead_s + rows * seconds_per_row[worker], worker))
    return Simulated(ideal_s, max(done for done, _ in free))


def default_split_s(ideal_s: float) -> float:
    """What at_infer.cluster.splits chooses for a run that would ideally take so long."""
    return min(SPLIT_S, ideal_s / SPLITS_PER_WORKER)


Entry = dict[str, Any]


def by_workers(costs: Costs, ideal_s: float = 600.0) -> list[Entry]:
    """The same series, `ideal_s` of work for each of 1000 workers, by fewer and as many, for several ways to cut."""
    series = series_lengths(WORKERS * ideal_s * costs.rows_per_s)
    ways: dict[str, float | None] = {"series": None, "1": 1.0, "10": 10.0, "100": 100.0}
    found = []
    for name, split_s in ways.items():
        split_rows = None if split_s is None else split_s * costs.rows_per_s
        runs = {workers: simulate(series, split_rows, workers, costs) for workers in (1, 3, 10, 30, 100, 300, 1000)}
        found += [{"split_s": name, "workers": workers, **_entry(run)} for workers, run in runs.items()]
    return found


def by_split(costs: Costs, most_splits: int = 2_000_000) -> list[Entry]:
    """1000 workers by the size of splits, for short and long runs."""
    found = []
    for ideal_s in IDEALS_S:
        series = series_lengths(WORKERS * ideal_s * costs.rows_per_s)
        for split_s in (0.3, 1.0, 2.0, 3.0, 5.0, 7.0, 10.0, 20.0, 30.0, 60.0, 100.0, 300.0):
            if WORKERS * ideal_s / split_s <= most_splits:
                run = simulate(series, split_s * costs.rows_per_s, WORKERS, costs)
                found.append({"work_s": ideal_s, "split_s": split_s, **_entry(run)})
    return found


def by_default(costs: Costs) -> list[Entry]:
    """1000 workers with the splits that at_infer.cluster.splits chooses."""
    found = []
    for ideal_s in IDEALS_S:
        series = series_lengths(WORKERS * ideal_s * costs.rows_per_s)
        split_s = default_split_s(ideal_s)
        run = simulate(series, split_s * costs.rows_per_s, WORKERS, costs)
        found.append({"work_s": ideal_s, "split_s": split_s, **_entry(run)})
    return found


def above(entries: list[Entry], busy: float) -> list[Entry]:
    """The smallest and the largest of the splits that keep workers that busy, for each length of a run."""
    found = []
    for work_s in IDEALS_S:
        sizes = [entry["split_s"] for entry in entries if entry["work_s"] == work_s and entry["busy"] > busy]
        found.append({"work_s": work_s, "from_s": min(sizes, default=None), "to_s": max(sizes, default=None)})
    return found


def _entry(run: Simulated) -> Entry:
    return {"ideal_s": round(run.ideal_s, 2), "makespan_s": round(run.makespan_s, 2), "busy": round(run.busy, 4)}
