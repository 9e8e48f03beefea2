"""What a table costs beside a raw array: the same rows scored as an array, and as tables of three libraries.

    python -m benchmarks.table_overhead [--rows 200000] [--repeats 7]

25 columns of float32 and a time, mode fusion, the default size with random weights, batches of 8. Contestants take
turns in one process, and all scores are compared bit for bit. CPU time counts beside the clock, because other work on
the machine disturbs it less. The overhead is the median over the rounds of a table's time divided by the array's in
the same round, minus one.
"""

import argparse
import json
import os
import statistics
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from at_infer import EngineOptions, Scorer
from benchmarks.models import FEATURES, export_default


def main() -> None:
    """Run, compare, print a table and one JSON line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--repeats", type=int, default=7)
    args = parser.parse_args()
    contestants = tables(args.rows)
    clock: dict[str, list[float]] = {name: [] for name in contestants}
    cpu: dict[str, list[float]] = {name: [] for name in contestants}
    with (
        tempfile.TemporaryDirectory() as folder,
        Scorer(export_default(Path(folder)), engine_options=_batches()) as scorer,
    ):
        expected = scorer.score(contestants["array"]).score  # also warms up
        for turn in range(args.repeats):
            names = list(contestants)
            for name in names[turn % len(names) :] + names[: turn % len(names)]:
                began, worked = time.perf_counter(), time.process_time()
                result = scorer.score(contestants[name])
                cpu[name].append(time.process_time() - worked)
                clock[name].append(time.perf_counter() - began)
                np.testing.assert_array_equal(result.score, expected)
    found = {
        name: {
            "seconds": statistics.median(clock[name]),
            "cpu_s": statistics.median(cpu[name]),
            "overhead": _overhead(clock[name], clock["array"]),
            "cpu_overhead": _overhead(cpu[name], cpu["array"]),
        }
        for name in contestants
    }
    print(f"{'':8}{'seconds':>9}{'CPU s':>9}{'overhead':>10}{'of CPU':>9}")
    for name, one in found.items():
        print(f"{name:8}{one['seconds']:9.2f}{one['cpu_s']:9.2f}{one['overhead']:10.1%}{one['cpu_overhead']:9.1%}")
    print(json.dumps({"benchmark": "table_overhead", "cpus": os.cpu_count(), **vars(args), "results": found}))


def tables(rows: int) -> dict[str, Any]:
    """The same rows in every kind."""
    values = np.random.default_rng(0).normal(size=(rows, FEATURES)).astype(np.float32)
    frame = pl.DataFrame(values, schema=[f"f{i:02}" for i in range(FEATURES)]).with_columns(
        timestamp=pl.datetime(2024, 1, 1) + pl.duration(seconds=pl.int_range(rows))
    )
    found: dict[str, Any] = {"array": values, "polars": frame}
    if find_spec("pandas") and find_spec("pyarrow"):
        found |= {"pandas": frame.to_pandas(), "arrow": frame.to_arrow()}
    else:
        print("pandas and arrow are left out: pip install pandas pyarrow")
    return found


def _batches() -> EngineOptions:
    """A probe would choose another size each time."""
    return EngineOptions(batch_size=8)


def _overhead(one: list[float], other: list[float]) -> float:
    return statistics.median(a / b for a, b in zip(one, other, strict=True)) - 1


if __name__ == "__main__":
    main()
