"""Rows per second of the default model: from file to file, live with one series, one by one and a few at a time, live
with many, and through a real `at-infer watch`, from JSON lines to JSON lines.

    python -m benchmarks.default_speed [--against CHECKOUT] [--rows 500000] [--series 1000] [--repeats 3]

25 columns, mode fusion, the default size with random weights. Every turn is a process of its own; with `--against`,
the code of another checkout takes turns with this one on the same files, and all scores are compared. With `--forest`
an IsolationForest of scikit-learn, fitted before, scores the same rows from file to file, with as many jobs as there
are CPUs. CPU time per row counts beside the clock, because other work on the machine disturbs it less. `watch` first
gets rows as fast as it takes them, then one a millisecond, each timed from the write to the answer.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]

FEATURES = 25
LIVE_ROWS = 1_000
WAITING = 8
"""Rows that have come while those before them were scored: `watch` takes them together."""
WARM_UP = 240
"""Rows until a live series has a full window and enough of a past."""
PACE_S = 1e-3
"""Between rows whose answers are timed."""
ROUNDS = 20
"""Rows of each of many series: with one of so many, a series forms its recent level anew."""


def main() -> None:
    """Run, compare, print a table and one JSON line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--against", type=Path, help="another checkout of at-infer")
    parser.add_argument("--engine", type=Path, help="a default model of 25 columns that both can read; or one is made")
    parser.add_argument("--rows", type=int, default=500_000)
    parser.add_argument("--series", type=int, default=1_000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--forest", action="store_true", help="compare with scikit-learn's IsolationForest")
    parser.add_argument("--turn", nargs=2, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.turn:
        folder, output = map(Path, args.turn)
        print(json.dumps(forest_turn(folder) if output.name == "forest" else turn(folder, output, args.series)))
        return
    here = Path(__file__).parents[1]
    codes = {"this": here} | ({"other": args.against} if args.against else {})
    codes |= {"forest": here} if args.forest else {}
    results: dict[str, list[dict[str, float]]] = {name: [] for name in codes}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        prepare(folder, args.rows, args.engine)
        for _ in range(args.repeats):
            for code, path in codes.items():
                words = [
                    sys.executable,
                    __file__,
                    "--series",
                    str(args.series),
                    "--turn",
                    str(folder),
                    f"{folder}/{code}",
                ]
                environment = os.environ | {"PYTHONPATH": str(path)}
                said = subprocess.run(words, check=True, stdout=subprocess.PIPE, cwd=folder, env=environment)
                results[code].append(json.loads(said.stdout))
        answers = [np.load(folder / f"{code}.npy") for code in codes if code != "forest"]
    for answer in answers[1:]:
        np.testing.assert_allclose(answer, answers[0], rtol=1e-4)
    found = {
        code: {key: statistics.median(one[key] for one in turns) for key in turns[0]} for code, turns in results.items()
    }
    for code, figures in found.items():
        print(code, *(f"{key} {value:.4g}" for key, value in figures.items()), sep="  ")
    args.against, args.engine = args.against and "another checkout", args.engine and "a default model"
    print(json.dumps({"benchmark": "default_speed", "cpus": os.cpu_count(), **vars(args), "results": found}))


def prepare(folder: Path, rows: int, engine: Path | None) -> None:
    """A model and a file."""
    from benchmarks.models import export_default, write_rows

    write_rows(folder / "data.parquet", rows)
    if engine is not None:
        shutil.copy(engine, folder / "model.onnx")
        return
    export_default(folder)


def forest_turn(folder: Path) -> dict[str, float]:
    """One process of an IsolationForest."""
    import polars as pl
    from sklearn.ensemble import IsolationForest

    known = pl.read_parquet(folder / "data.parquet", n_rows=50_000).drop("timestamp").to_numpy()
    forest = IsolationForest(random_state=0, n_jobs=os.cpu_count()).fit(known)
    cpu, begin = time.process_time(), time.perf_counter()
    table = pl.read_parquet(folder / "data.parquet")
    scores = -forest.score_samples(table.drop("timestamp").to_numpy())
    table.select("timestamp", score=pl.Series(scores)).write_parquet(folder / "forest.parquet")
    seconds, cpu_s = time.perf_counter() - begin, time.process_time() - cpu
    assert np.isfinite(scores).all()
    assert scores.std() > 0
    return {"file_rows_per_s": len(scores) / seconds, "file_cpu_us_per_row": 1e6 * cpu_s / len(scores)}


def turn(folder: Path, output: Path, series: int) -> dict[str, float]:
    """One process of one contestant."""
    from at_infer.memory import own_memory

    own_memory()  # as the command does, before it imports polars
    import polars as pl

    from at_infer.live.scorer import StreamScorer
    from at_infer.scoring.score_file import score_file

    scores = output.with_suffix(".parquet")
    cpu = time.process_time()
    summary = score_file(folder / "data.parquet", folder / "model.onnx", scores, overwrite=True)
    figures = {
        "file_rows_per_s": summary.rows_per_s,
        "file_cpu_us_per_row": 1e6 * (time.process_time() - cpu) / summary.rows,
    }
    values = np.random.default_rng(0).normal(size=(WARM_UP + LIVE_ROWS, FEATURES)).astype(np.float32)
    many = np.random.default_rng(1).normal(size=(WARM_UP + ROUNDS, series, FEATURES)).astype(np.float32)
    names = [f"machine {i}" for i in range(series)]
    live = []
    with StreamScorer(folder / "model.onnx") as stream:
        stream.push_many(values[:WARM_UP])
        cpu, begin, delays = time.process_time(), time.perf_counter(), []
        for row in values[WARM_UP:]:
            began = time.perf_counter()
            live.append(stream.push(row).score)
            delays.append(time.perf_counter() - began)
        figures["live_rows_per_s"] = LIVE_ROWS / (time.perf_counter() - begin)
        figures["live_cpu_us_per_row"] = 1e6 * (time.process_time() - cpu) / LIVE_ROWS
        figures["live_p99_ms"] = 1e3 * float(np.percentile(delays, 99))
        begin, delays = time.perf_counter(), []
        for first in range(WARM_UP, len(values), WAITING):
            began = time.perf_counter()
            stream.push_many(values[first : first + WAITING])
            delays.append(time.perf_counter() - began)
        figures["waiting_rows_per_s"] = LIVE_ROWS / (time.perf_counter() - begin)
        figures["waiting_p99_ms"] = 1e3 * float(np.percentile(delays, 99))
        for k, name in enumerate(names):
            stream.push_many(many[:WARM_UP, k], [name] * WARM_UP)
        cpu, begin = time.process_time(), time.perf_counter()
        for rows in many[WARM_UP:]:
            last = stream.push_many(rows, names).score
        figures["many_rows_per_s"] = ROUNDS * series / (time.perf_counter() - begin)
        figures["many_cpu_us_per_row"] = 1e6 * (time.process_time() - cpu) / (ROUNDS * series)
    watched, of_watch = watch(folder / "model.onnx", values)
    np.testing.assert_allclose(np.array(watched, np.float32), np.array(live, np.float32), rtol=1e-4)
    figures |= of_watch
    answer = np.concatenate([pl.read_parquet(scores)["score"].to_numpy(), np.array(live, np.float32), last])
    np.save(output.with_suffix(".npy"), answer)
    return figures


def watch(model: Path, values: Floats) -> tuple[list[float], dict[str, float]]:
    """Scores of live rows by a process of the command, and what it takes; the same rows once more, in time."""
    names = [f"f{i:02}" for i in range(FEATURES)]
    rows = np.concatenate([values, values[WARM_UP:]]).tolist()
    lines = [json.dumps({"timestamp": i, **dict(zip(names, row, strict=True))}).encode() for i, row in enumerate(rows)]
    words = [sys.executable, "-m", "at_infer", "watch", "--engine", str(model), "--delay", "0", "--max-delay-ms", "0"]
    process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert process.stdin is not None
    assert process.stdout is not None
    into, answers = process.stdin.fileno(), process.stdout

    def send(some: list[bytes]) -> None:
        whole = b"\n".join(some) + b"\n"
        while whole:
            whole = whole[os.write(into, whole) :]

    send(lines[:WARM_UP])
    for _ in range(WARM_UP):
        answers.readline()
    writer = threading.Thread(target=send, args=(lines[WARM_UP : len(values)],))
    begin = time.perf_counter()
    writer.start()
    scores = [json.loads(answers.readline())["score"] for _ in range(LIVE_ROWS)]
    seconds = time.perf_counter() - begin
    writer.join()
    delays = []
    for line in lines[len(values) :]:
        began = time.perf_counter()
        send([line])
        answers.readline()
        delays.append(time.perf_counter() - began)
        time.sleep(max(0.0, began + PACE_S - time.perf_counter()))
    process.stdin.close()
    process.wait()
    p50, p99 = (1e3 * float(np.percentile(delays, q)) for q in (50, 99))
    return scores, {"watch_rows_per_s": LIVE_ROWS / seconds, "watch_p50_ms": p50, "watch_p99_ms": p99}


if __name__ == "__main__":
    main()
