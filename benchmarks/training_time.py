"""How long `at-infer train` takes with nothing but a file.

    python -m benchmarks.training_time [--rows 50000] [--columns 25] [--repeats 3]

Sines of different periods with noise, one of them in each column, to learn from; each run is a process of its own, from
Parquet file to checkpoint. CPU time counts beside the clock. What was learnt is checked: the reconstruction error of
the validation part, in units of the variance of the rows, and that one more run gives the same weights.
"""

import argparse
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import polars as pl
import torch

from training.checkpoint import Checkpoint

MOST_ERROR = 0.1


def write_sines(path: Path, rows: int, columns: int) -> None:
    """A column for each period."""
    rng, t = np.random.default_rng(0), np.arange(rows)
    sines = {
        f"f{k:02}": (np.sin(2 * np.pi * t / (60 + 20 * k)) + 0.1 * rng.normal(size=rows)).astype(np.float32)
        for k in range(columns)
    }
    pl.DataFrame(sines).write_parquet(path)


def cpu_seconds() -> float:
    """Of all processes that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main() -> None:
    """Train, print a line and one JSON line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=50_000)
    parser.add_argument("--columns", type=int, default=25)
    parser.add_argument("--repeats", type=int, default=3)
    args = parser.parse_args()
    clock, cpu, weights, errors, steps = [], [], [], [], []
    with tempfile.TemporaryDirectory() as name:
        data, checkpoint = Path(name, "train.parquet"), Path(name, "ckpt.pt")
        write_sines(data, args.rows, args.columns)
        words = [sys.executable, "-m", "at_infer", "train", str(data), "-o", str(checkpoint), "--overwrite"]
        for _ in range(args.repeats):
            before, begin = cpu_seconds(), time.perf_counter()
            subprocess.run(words, check=True, capture_output=True)
            clock.append(time.perf_counter() - begin)
            cpu.append(cpu_seconds() - before)
            found = Checkpoint.load(checkpoint)
            weights.append(torch.cat([tensor.flatten().double() for tensor in found.state_dict.values()]))
            evaluations = found.train["evaluations"]
            errors.append(min(one["validation_reconstruction"] for one in evaluations))
            steps.append(max(one["step"] for one in evaluations))
    assert max(errors) < MOST_ERROR, errors
    assert all(torch.equal(one, weights[0]) for one in weights)
    seconds, cpu_s = statistics.median(clock), statistics.median(cpu)
    print(f"{args.rows} rows of {args.columns} columns, {steps[0]} steps: {seconds:.1f} s, {cpu_s:.1f} s of CPU")
    figures = {"seconds": round(seconds, 2), "cpu_s": round(cpu_s, 2), "steps": steps[0]}
    learnt = {"validation_error": round(errors[0], 4)}
    print(json.dumps({"benchmark": "training_time", **vars(args), **figures, **learnt}))


if __name__ == "__main__":
    main()
