"""How soon `at-infer score` answers on a small file, and how much of that is imports.

    python -m benchmarks.startup [--repeats 7]

Each run is a process of its own: the whole command on 1000 rows (25 columns, window 100, 64 wide), and the modules
that it imports alone. The output is checked; torch must not be among the modules.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import polars as pl

from at_infer.config import ScoreConfig
from benchmarks.models import export, write_rows

ROWS = 1000
IMPORTS = "import sys, at_infer.cli, at_infer.scoring.score_file, onnxruntime; assert 'torch' not in sys.modules"


def seconds(*arguments: str) -> float:
    """What one process takes."""
    begin = time.perf_counter()
    subprocess.run([sys.executable, *arguments], check=True, capture_output=True)
    return time.perf_counter() - begin


def main() -> None:
    """Run, print a table and one JSON line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=7)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        data, output = folder / "data.parquet", folder / "scores.parquet"
        write_rows(data, ROWS)
        model = export(folder, 64, ScoreConfig())
        score = ["-m", "at_infer", "score", str(data), "--engine", str(model), "-o", str(output), "--overwrite"]
        contestants = {"python": ["-c", "pass"], "imports": ["-c", IMPORTS], "score": score}
        times: dict[str, list[float]] = {title: [] for title in contestants}
        for _ in range(args.repeats + 1):
            for title, arguments in contestants.items():
                times[title].append(seconds(*arguments))
        assert pl.read_parquet(output).height == ROWS
    medians = {title: statistics.median(taken[1:]) for title, taken in times.items()}
    for title, taken_s in medians.items():
        print(f"{title:10}{taken_s:8.2f} s{min(times[title]):8.2f} s at best")
    print(json.dumps({"benchmark": "startup", **vars(args), "median_s": medians}))


if __name__ == "__main__":
    main()
