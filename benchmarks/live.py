"""Rows per second and delay per row of `at-infer watch`, against its own engine on windows prepared in memory.

    python -m benchmarks.live [--widths 128 512] [--rows 64] [--repeats 15] [--paced-rows 300] [--threads 2]

For 1, 100 and 10 000 interleaved series of 25 columns (window 100, random weights), whose buffers are full at the
start: the engine alone and the whole loop, from lines of JSON to lines of JSON, take turns on the same rows; their
scores are compared. Then a real process gets rows through a pipe at half the rate that the engine can do, and every
row is timed from the write to the answer. Last, an engine that costs nothing shows what the loop itself can do.
"""

import argparse
import io
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from at_infer.config import ScoreConfig
from at_infer.engines import Engine, open_engine
from at_infer.live.lines import PipedLines
from at_infer.live.options import WatchOptions
from at_infer.live.rows import RowReader
from at_infer.live.scorer import StreamScorer
from at_infer.live.watch import Watch
from at_infer.scoring.options import EngineOptions
from benchmarks.models import FEATURES, export
from benchmarks.throughput import FreeEngine

Floats = NDArray[np.float32]

WINDOW = 100
SERIES = (1, 100, 10_000)
COLUMNS = [f"f{i:02}" for i in range(FEATURES)]


class Feed:
    """Rows of interleaved series, as values, as lines, and as the windows that end with them."""

    def __init__(self, series: int, rows: int) -> None:
        self.series, self.rows = series, rows
        rng = np.random.default_rng(0)
        self.before = rng.normal(size=(series, WINDOW - 1, FEATURES)).astype(np.float32)
        self.values = rng.normal(size=(rows, FEATURES)).astype(np.float32).round(4)

    def names(self) -> list[str]:
        """Of all series."""
        return [f"machine {i:05}" for i in range(self.series)]

    def windows(self) -> Floats:
        """(rows,N,F), ready for the engine."""
        past = {i: list(self.before[i]) for i in range(min(self.series, self.rows))}
        found = np.empty((self.rows, WINDOW, FEATURES), np.float32)
        for i, row in enumerate(self.values):
            last = past[i % self.series]
            found[i] = [*last, row]
            past[i % self.series] = [*last[1:], row]
        return found

    def lines(self) -> Iterator[bytes]:
        """As a producer would write them."""
        names = self.names()
        for i, row in enumerate(self.values.tolist()):
            record = {"timestamp": WINDOW + i, "machine": names[i % self.series]}
            record |= {name: round(value, 4) for name, value in zip(COLUMNS, row, strict=True)}
            yield json.dumps(record).encode() + b"\n"

    def fill(self, stream: StreamScorer) -> None:
        """All but one row of a window, for every series."""
        names = self.names()
        for step in range(WINDOW - 1):
            stream.push_many(self.before[:, step], names, [step] * self.series)


class Watched(NamedTuple):
    """What the loop said, and what it took."""

    scores: Floats
    seconds: float
    cpu_s: float
    """Of the loop's own thread."""


def watch_lines(stream: StreamScorer, path: Path, max_delay_s: float) -> Watched:
    """Lines of a file through the whole loop, in this process."""
    out = io.BytesIO()
    reader = RowReader(COLUMNS, time_column="timestamp", series_column="machine")
    said: list[str] = []
    with path.open("rb") as file:
        options = WatchOptions(max_delay_s=max_delay_s)
        loop = Watch(PipedLines(file.fileno()), reader, stream, out, said.append, options)
        begin, cpu_begin = time.perf_counter(), time.thread_time()
        loop.run(lambda: False)
        seconds, cpu_s = time.perf_counter() - begin, time.thread_time() - cpu_begin
    assert not said, said[0]
    answers = [json.loads(line) for line in out.getvalue().splitlines()]
    scores = [np.nan if one["score"] is None else one["score"] for one in answers]
    return Watched(np.array(scores, np.float32), seconds, cpu_s)


def side_by_side(engine: Engine, feed: Feed, folder: Path, args: argparse.Namespace) -> dict[str, float]:
    """The engine alone and the loop around it, taking turns on the same rows."""
    state, lines = folder / f"{feed.series}.state", folder / "rows.jsonl"
    lines.write_bytes(b"".join(feed.lines()))
    stream = StreamScorer(engine, engine_options=EngineOptions(batch_size=args.batch_size), delay=0)
    feed.fill(stream)
    stream.save(state)
    windows = feed.windows()
    batches = [windows[i : i + args.batch_size] for i in range(0, len(windows), args.batch_size)]
    alone_s, loop_s, around = [], [], []
    for repeat in range(args.repeats + 1):
        begin = time.perf_counter()
        expected = np.concatenate([engine.run(batch)["score"][:, -1] for batch in batches])
        seconds = time.perf_counter() - begin
        stream.load(state)
        stream.scorer.engine_s = 0.0
        watched = watch_lines(stream, lines, args.max_delay_ms / 1000)
        np.testing.assert_allclose(watched.scores, expected, rtol=1e-4, atol=1e-6)
        if repeat:
            alone_s.append(seconds)
            loop_s.append(watched.seconds)
            around.append((watched.seconds - stream.scorer.engine_s) / stream.scorer.engine_s)
    return {
        "engine_rows_per_s": feed.rows / statistics.median(alone_s),
        "rows_per_s": feed.rows / statistics.median(loop_s),
        "of_engine": statistics.median(a / b for a, b in zip(alone_s, loop_s, strict=True)),
        "around_engine": statistics.median(around),
    }


def paced(model: Path, feed: Feed, folder: Path, rate: float, args: argparse.Namespace) -> dict[str, float]:
    """Delay of every row through a real process, at a steady rate."""
    lines = list(feed.lines())[: args.paced_rows]
    words = ["watch", "--engine", model, "--series-column", "machine", "--threads", args.threads]
    words += ["--batch-size", args.batch_size, "--max-delay-ms", args.max_delay_ms, "--delay", 0]
    state = folder / f"{feed.series}.state"
    process = subprocess.Popen(
        [sys.executable, "-m", "at_infer", *map(str, words), "--state", str(state)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    into = process.stdin.fileno()
    os.write(into, lines[0])
    process.stdout.readline()  # it is up
    written = [0.0] * len(lines)

    def write() -> None:
        begin = time.perf_counter()
        for i in range(1, len(lines)):
            time.sleep(max(0.0, begin + i / rate - time.perf_counter()))
            written[i] = time.perf_counter()
            os.write(into, lines[i])

    writer = threading.Thread(target=write)
    writer.start()
    delays = []
    for i in range(1, len(lines)):
        answer = process.stdout.readline()
        delays.append(1000 * (time.perf_counter() - written[i]))
        assert json.loads(answer)["score"] is not None
    writer.join()
    process.communicate()
    p50, p99 = np.percentile(delays, [50, 99])
    return {"paced_rows_per_s": rate, "p50_ms": float(p50), "p99_ms": float(p99)}


def loop_alone(engine: Engine, feed: Feed, folder: Path, args: argparse.Namespace) -> dict[str, float]:
    """The loop with an engine that costs nothing."""
    assert engine.metadata is not None
    stream = StreamScorer(
        FreeEngine(engine.metadata), engine_options=EngineOptions(batch_size=args.batch_size), delay=0
    )
    lines = folder / "free.jsonl"
    lines.write_bytes(b"".join(feed.lines()))
    runs = []
    for _ in range(args.repeats):
        stream.load(folder / f"{feed.series}.state")
        runs.append(watch_lines(stream, lines, args.max_delay_ms / 1000))
        np.testing.assert_allclose(runs[-1].scores, feed.values[:, 0], rtol=1e-6)
    return {
        "loop_rows_per_s": feed.rows / statistics.median(run.seconds for run in runs),
        "loop_cpu_us_per_row": 1e6 * statistics.median(run.cpu_s for run in runs) / feed.rows,
    }


def main() -> None:
    """Run, compare, print a table and one JSON line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--widths", type=int, nargs="+", default=[128, 512], help="of the network; the paper's is 512")
    parser.add_argument("--rows", type=int, default=64, help="rows per turn")
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--paced-rows", type=int, default=300, help="rows that are timed one by one")
    parser.add_argument("--free-rows", type=int, default=5_000, help="rows through the engine that costs nothing")
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--max-delay-ms", type=float, default=10.0)
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()
    results = [result for width in args.widths for result in of_width(width, args)]
    print(f"{FEATURES} columns, window {WINDOW}, 3 layers, {args.threads} threads, batches of {args.batch_size}")
    print("width  series  engine rows/s  watch rows/s  of engine  around it  p50 ms  p99 ms  loop alone  CPU per row")
    for r in results:
        print(
            f"{r['width']:5.0f}{r['series']:8.0f}{r['engine_rows_per_s']:15.1f}{r['rows_per_s']:14.1f}"
            f"{r['of_engine']:11.1%}{r['around_engine']:11.1%}{r['p50_ms']:8.1f}{r['p99_ms']:8.1f}"
            f"{r['loop_rows_per_s']:12.0f}{r['loop_cpu_us_per_row']:10.0f} us"
        )
    print(json.dumps({"benchmark": "live", "cpus": os.cpu_count(), **vars(args), "results": results}))


def of_width(width: int, args: argparse.Namespace) -> list[dict[str, float]]:
    """All measurements with one network."""
    results = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        model = export(folder, width, ScoreConfig(mode="reconstruction"))
        with open_engine(model, threads=args.threads) as engine:
            for series in SERIES:
                result: dict[str, float] = {"width": width, "series": series}
                result |= side_by_side(engine, Feed(series, args.rows), folder, args)
                result |= loop_alone(engine, Feed(series, args.free_rows), folder, args)
                results.append(result)
        for result in results:  # the engine of this process is closed: two of them would share the cores
            feed = Feed(int(result["series"]), args.paced_rows)
            result |= paced(model, feed, folder, result["engine_rows_per_s"] / 2, args)
    return results


if __name__ == "__main__":
    main()
