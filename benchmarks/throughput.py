"""Rows per second of `at-infer score` against its own engine, against polars, and against a published-style script.

    python -m benchmarks.throughput [--rows 20000] [--free-rows 4000000] [--threads 2] [--repeats 3]

Contestants take turns on the same rows of 25 columns through a model of the paper's size (window 100, 512 wide,
3 layers, random weights): the engine alone on windows prepared in memory, `score_file` from file to file, and a
PyTorch script in the manner of the published code. Then an engine that costs nothing shows what reading, cutting into
windows and writing can do, beside polars that reads and rewrites the same file. All scores are compared. Rates are by
the clock and by CPU time, which other work on the machine disturbs less; both are medians.
"""

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import numpy as np
import polars as pl
import torch
from numpy.typing import NDArray

from at_infer.config import ScoreConfig
from at_infer.engines import Scoring, open_engine
from at_infer.models.metadata import Metadata
from at_infer.scoring.options import EngineOptions
from at_infer.scoring.score_file import score_file
from benchmarks.models import checkpoint, export, write_rows
from benchmarks.published import published_script

Floats = NDArray[np.float32]


class FreeEngine(Scoring):
    """Answers at once, with the first column."""

    def __init__(self, metadata: Metadata) -> None:
        self.path, self.metadata = Path("free"), metadata
        self.missing: list[str] = []
        self.outputs: tuple[str, ...] = ("score",)

    def run(self, windows: Floats) -> dict[str, Floats]:
        """(B,N,F) -> the first feature."""
        return {"score": windows[:, :, 0].copy()}

    def describe(self) -> str:
        """For the summary."""
        return "an engine that costs nothing"


def main() -> None:
    """Run, compare, print a table and one JSON line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=20_000, help="rows through the model of the paper's size")
    parser.add_argument("--free-rows", type=int, default=4_000_000, help="rows through the engine that costs nothing")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--repeats", type=int, default=3)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    score = ScoreConfig(mode="published")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        real = with_model(folder, score, args)
        free = with_free_engine(folder, args)
    print(f"{args.rows} rows, 25 columns, window 100, 512 wide, 3 layers, {args.threads} threads")
    base = real["script"]
    for title, key in (
        ("published-style script", "script"),
        ("at-infer score", "score"),
        ("its engine alone", "engine"),
    ):
        rate = real[key]
        print(f"{title:26}{rate.clock:12.0f} rows/s{rate.clock / base.clock:8.2f}x{rate.cpu:12.0f} rows/CPU s")
    by_clock, by_cpu = (getattr(real["engine"], kind) / getattr(real["score"], kind) - 1 for kind in ("clock", "cpu"))
    print(f"score takes {by_clock:+.1%} of its engine's time on top by the clock, {by_cpu:+.1%} by CPU time")
    print(f"{args.free_rows} rows, 25 columns, an engine that costs nothing")
    for title, key in (("at-infer score", "score"), ("polars reads and rewrites", "polars")):
        print(f"{title:26}{free[key].clock:12.0f} rows/s{free[key].cpu:20.0f} rows/CPU s")
    report = {"benchmark": "throughput", **vars(args)}
    for kind, suffix in (("clock", "rows_per_s"), ("cpu", "rows_per_cpu_s")):
        report[suffix] = {name: round(getattr(rate, kind)) for name, rate in real.items()}
        report[f"free_{suffix}"] = {name: round(getattr(rate, kind)) for name, rate in free.items()}
    print(json.dumps(report))


class Rate(NamedTuple):
    """Rows per second by the clock, and per second of CPU time."""

    clock: float
    cpu: float


class Times:
    """What runs of one contestant took."""

    def __init__(self) -> None:
        self.clock: list[float] = []
        self.cpu: list[float] = []

    @contextmanager
    def take(self) -> Iterator[None]:
        """Time what happens inside."""
        clock, cpu = time.perf_counter(), time.process_time()
        yield
        self.clock.append(time.perf_counter() - clock)
        self.cpu.append(time.process_time() - cpu)

    def rate(self, rows: int) -> Rate:
        """By the median of all runs but the first, which warms up."""
        return Rate(rows / statistics.median(self.clock[1:]), rows / statistics.median(self.cpu[1:]))


def with_model(folder: Path, score: ScoreConfig, args: argparse.Namespace) -> dict[str, Rate]:
    """Rows per second of the contestants that run the model."""
    data, output = folder / "data.parquet", folder / "scores.parquet"
    write_rows(data, args.rows)
    model = export(folder, 512, score)
    network = checkpoint(512, score).network()
    rows = pl.read_parquet(data).drop("timestamp").to_numpy()
    windows = np.ascontiguousarray(rows.reshape(-1, 100, rows.shape[1]), np.float32)
    answers: dict[str, Floats] = {}
    with open_engine(model, threads=args.threads) as engine:

        def alone() -> Floats:
            batches = np.array_split(windows, -(-len(windows) // args.batch_size))
            return np.concatenate([engine.run(batch)["score"] for batch in batches]).reshape(-1)

        def whole() -> Floats:
            score_file(data, engine, output, overwrite=True, engine_options=EngineOptions(batch_size=args.batch_size))
            return pl.read_parquet(output)["score"].to_numpy()

        contestants: dict[str, Callable[[], Floats]] = {
            "script": lambda: published_script(data, network, args.batch_size),
            "engine": alone,
            "score": whole,
        }
        times = {name: Times() for name in contestants}
        for _ in range(args.repeats + 1):
            for name, run in contestants.items():
                with times[name].take():
                    answers[name] = run()
    np.testing.assert_allclose(answers["score"], answers["engine"], rtol=1e-3, atol=1e-6)
    np.testing.assert_allclose(answers["score"], answers["script"], rtol=5e-2, atol=1e-5)
    return {name: taken.rate(args.rows) for name, taken in times.items()}


def with_free_engine(folder: Path, args: argparse.Namespace) -> dict[str, Rate]:
    """Rows per second of all that is not the model."""
    data, output = folder / "big.parquet", folder / "out.parquet"
    write_rows(data, args.free_rows)
    with open_engine(folder / "model.onnx") as engine:
        metadata = engine.metadata
    assert metadata is not None
    times = {"score": Times(), "polars": Times()}
    for _ in range(args.repeats + 1):
        with times["polars"].take():
            pl.scan_parquet(data).sink_parquet(folder / "copy.parquet", compression="zstd")
        with times["score"].take():
            score_file(data, FreeEngine(metadata), output, overwrite=True, engine_options=EngineOptions(batch_size=256))
    expected = pl.scan_parquet(data).select("f00").collect()["f00"]
    assert pl.read_parquet(output)["score"].equals(expected.alias("score"))
    return {name: taken.rate(args.free_rows) for name, taken in times.items()}


if __name__ == "__main__":
    main()
