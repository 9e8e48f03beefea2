"""What splitting costs, measured with 1 and 2 Ray workers here, and what it would bring up to 1000, computed.

    python -m benchmarks.scale_out [--rows 40000] [--width 512] [--repeats 3] [--output out.json] [--figure plot.svg]
    python -m benchmarks.scale_out --measured out.json

Measured: the plain command's core and 1 and 2 workers of one thread each take turns on the same rows of 25 columns
through a model of window 100; their scores are compared. What a split costs beside its engine is the slope over many
and few splits of the same rows. What the driver spends per split is measured with 1000 answers pending.
Simulated (benchmarks/scale_out_simulation.py): 1 to 1000 workers over series of heavy-tailed lengths with those costs.
"""

import argparse
import json
import os
import statistics
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from at_infer import __version__
from at_infer.cluster.actors import ActorSlot, Placement, RayWorkers, ray_workers
from at_infer.cluster.connect import ray_cluster
from at_infer.cluster.manifest import NAME
from at_infer.cluster.run import score_on_workers
from at_infer.cluster.splits import SPLIT_S, SPLITS_PER_WORKER
from at_infer.cluster.worker import Job, WorkerSettings
from at_infer.config import ScoreConfig
from at_infer.engines import open_engine
from at_infer.models.kinds import file_sha256
from at_infer.scoring.options import EngineOptions, ScoreOptions
from at_infer.scoring.score_file import score_file
from at_infer.tables.columns import Columns
from benchmarks.models import export, write_rows
from benchmarks.scale_out_figure import draw
from benchmarks.scale_out_simulation import WORKERS, Costs, above, by_default, by_split, by_workers

FEW, MANY = 4, 40  # splits
PENDING = 1000
IDLE = Job("survey", ())  # a job without work


class Took(NamedTuple):
    """What a run took."""

    seconds: float
    engine_s: float
    cpu_s: float
    """Of all processes that read, score, write or give out; a busy machine hardly changes it."""


Turn = dict[str, Took]


class Measured:
    """Runs on workers, timed from the first split's going out to the last one's coming in."""

    def __init__(self, data: Path, model: Path, folder: Path, rows: int) -> None:
        self.data, self.model, self.folder, self.rows = data, model, folder, rows
        self.pids: list[int] = []

    def run(self, workers: int, splits: int) -> Took:
        """Score all rows."""
        out = self.folder / f"scores-{workers}-{splits}"
        marks: list[tuple[float, float]] = []

        def observe(_done: int, _rows: int) -> None:
            marks.append((time.perf_counter(), time.process_time() + sum(map(cpu_seconds, self.pids))))

        summary = score_on_workers(
            self.data,
            self.model,
            out,
            open_workers=partial(self._all_open, most=workers),
            engine_options=EngineOptions(threads=1, batch_size=8),
            split_rows=-(-self.rows // splits),
            overwrite=True,
            observe=observe,
        )
        assert (summary.workers, summary.splits) == (workers, splits)
        (begin, cpu_before), (end, cpu_after) = marks[0], marks[-1]
        return Took(end - begin, summary.engine_s, cpu_after - cpu_before)

    @contextmanager
    def _all_open(self, settings: WorkerSettings, *, most: int) -> Iterator[RayWorkers]:
        """Workers that are all ready, so that none joins in the middle."""
        with ray_workers(settings, address="auto", most=most) as workers:
            while len(workers.opened) < most:
                deque(workers.run(deque([IDLE])), maxlen=0)
            self.pids = [opened.pid for opened in workers.opened]
            yield workers

    def driver(self, jobs: int = 400) -> float:
        """CPU seconds per job that does nothing, while as many answers are pending as 1000 workers would leave."""
        settings = WorkerSettings(
            version=__version__,
            engine=str(self.model),
            engine_sha256=file_sha256(self.model),
            options=ScoreOptions(),
            engine_options=EngineOptions(threads=1, batch_size=8),
            columns=Columns((), None, None, series_per_file=False),
            folder=str(self.folder),
        )
        with self._all_open(settings, most=2) as workers:
            ray = workers.ray
            blocker = ray.remote(num_cpus=0)(_Blocker).remote()
            for _ in range(PENDING - workers.count):
                workers.pending[blocker.wait.remote()] = ActorSlot(Placement("", 0), blocker)
            begin = time.process_time()
            deque(workers.run(deque([IDLE] * jobs)), maxlen=0)
            seconds = (time.process_time() - begin) / jobs
            ray.kill(blocker)
        return seconds


def cpu_seconds(pid: int) -> float:
    """Of a process of this machine, all its threads together."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class _Blocker:
    """Never answers."""

    def wait(self) -> None:
        """For longer than any benchmark."""
        time.sleep(3600)


def measure(args: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Contestants take turns; medians and the ratios of each turn."""
    data = folder / "data.parquet"
    write_rows(data, args.rows)
    model = export(folder, args.width, ScoreConfig())
    loads = [os.getloadavg()[0]]
    begin = time.perf_counter()
    with ray_cluster("local", local_cpus=2, say=lambda _: None), open_engine(model, threads=1) as engine:
        start_s = time.perf_counter() - begin
        measured = Measured(data, model, folder, args.rows)

        def plain() -> Took:
            cpu_before = time.process_time()
            summary = score_file(
                data, engine, folder / "plain.parquet", overwrite=True, engine_options=EngineOptions(batch_size=8)
            )
            return Took(summary.seconds, summary.engine_s, time.process_time() - cpu_before)

        contestants: dict[str, Callable[[], Took]] = {
            "plain": plain,
            "1 worker": partial(measured.run, 1, FEW),
            "1 worker, many splits": partial(measured.run, 1, MANY),
            "2 workers": partial(measured.run, 2, FEW),
            "2 workers, many splits": partial(measured.run, 2, MANY),
        }
        turns: list[Turn] = []
        for turn in range(args.repeats + 1):
            found = {name: run() for name, run in contestants.items()}
            if turn:
                turns.append(found)
        driver_s = [measured.driver() for _ in range(args.repeats)]
    loads.append(os.getloadavg()[0])
    check(folder)

    def median(figure: Callable[[Turn], float]) -> float:
        return statistics.median(figure(turn) for turn in turns)

    seconds = {name: median(lambda turn: turn[name].seconds) for name in contestants}  # noqa: B023 - called at once
    efficiency = {
        name: median(lambda turn: turn["plain"].seconds / (turn[name].seconds * int(name[0])))  # noqa: B023
        for name in contestants
        if name != "plain"
    }
    cpu_efficiency = {
        name: median(lambda turn: turn["plain"].cpu_s / turn[name].cpu_s)  # noqa: B023
        for name in efficiency
    }
    few, many = "1 worker", "1 worker, many splits"

    def beside_engines(turn: Turn, name: str) -> float:
        return turn[name].seconds - turn[name].engine_s

    per_split_s = median(lambda turn: (beside_engines(turn, many) - beside_engines(turn, few)) / (MANY - FEW))
    return {
        "seconds": {name: round(value, 3) for name, value in seconds.items()},
        "rows_per_s": {name: round(args.rows / value, 1) for name, value in seconds.items()},
        "efficiency": {name: round(value, 3) for name, value in efficiency.items()},
        "cpu_efficiency": {name: round(value, 3) for name, value in cpu_efficiency.items()},
        "engine_rows_per_s": round(args.rows / median(lambda turn: turn["plain"].engine_s), 1),
        "split_overhead_s": round(max(per_split_s, 0.0), 4),
        "driver_s_per_split": round(statistics.median(driver_s), 5),
        "cluster_start_s": round(start_s, 1),
        "cpus": os.cpu_count(),
        "load_average": [round(load, 1) for load in loads],
    }


def check(folder: Path) -> None:
    """All of them gave the same scores."""
    expected = pl.read_parquet(folder / "plain.parquet")["score"].to_numpy()
    for out in sorted(folder.glob("scores-*")):
        splits = json.loads((out / NAME).read_text(encoding="utf-8"))["splits"]
        found = pl.concat([pl.read_parquet(out / split["file"]) for split in splits])["score"].to_numpy()
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def main() -> None:
    """Measure, simulate, print, draw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=40_000)
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--measured", type=Path, help="earlier result: simulate with its figures, measure nothing")
    parser.add_argument("--output", type=Path, help="JSON to write")
    parser.add_argument("--figure", type=Path, help="SVG to write")
    args = parser.parse_args()
    if args.measured is not None:
        earlier = json.loads(args.measured.read_text(encoding="utf-8"))
        found = earlier["measured"]
        args.rows, args.width, args.repeats = earlier["rows"], earlier["width"], earlier["repeats"]
    else:
        with tempfile.TemporaryDirectory() as name:
            found = measure(args, Path(name))
    costs = Costs(found["engine_rows_per_s"], found["split_overhead_s"], found["driver_s_per_split"], halo_rows=100)
    simulated: dict[str, list[Any]] = {
        "by_workers": by_workers(costs),
        "by_split": by_split(costs),
        "default": by_default(costs),
    }
    simulated["above_90_percent"] = above(simulated["by_split"], 0.9)
    report = {
        "benchmark": "scale_out",
        "rows": args.rows,
        "width": args.width,
        "repeats": args.repeats,
        "measured": found,
        "simulated": simulated,
        "split_s": SPLIT_S,
        "splits_per_worker": SPLITS_PER_WORKER,
    }
    print(f"measured: {args.rows} rows, 25 columns, window 100, {args.width} wide, one thread per worker")
    for contestant, seconds in found["seconds"].items():
        share = ""
        if contestant in found["efficiency"]:
            by_clock, by_cpu = found["efficiency"][contestant], found["cpu_efficiency"][contestant]
            share = f"{by_clock:8.1%} efficient by the clock,{by_cpu:7.1%} by CPU time"
        print(f"{contestant:24}{seconds:8.2f} s{found['rows_per_s'][contestant]:10.0f} rows/s{share}")
    print(f"a split costs {found['split_overhead_s'] * 1e3:.0f} ms beside its engine, the driver ", end="")
    print(f"{found['driver_s_per_split'] * 1e3:.1f} ms; a local cluster starts in {found['cluster_start_s']} s")
    print(f"load of this machine: {found['load_average'][0]} before, {found['load_average'][1]} after")
    print(f"simulated: {WORKERS} workers, series of heavy-tailed lengths")
    for entry in [*simulated["by_split"], *simulated["default"]]:
        print(
            f"{entry['work_s']:7.0f} s of work each, splits of {entry['split_s']:5.1f} s:{entry['makespan_s']:9.1f} s, "
            f"{entry['busy']:6.1%} busy"
        )
    for entry in simulated["above_90_percent"]:
        print(
            f"{entry['work_s']:7.0f} s of work each: above 90 % with splits of {entry['from_s']} to {entry['to_s']} s"
        )
    if args.figure is not None:
        args.figure.write_text(draw(report), encoding="utf-8")
    if args.output is not None:
        args.output.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(report))


if __name__ == "__main__":
    main()
