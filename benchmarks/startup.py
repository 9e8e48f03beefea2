"""How soon `at-infer score` answers on a small file, and how much of that is imports.

    python -m benchmarks.startup [--repeats 7]

Each run is a process of its own: the whole command on 1000 rows (25 columns, the default model), the modules that it
imports alone, and the libraries among these. Bytecode is kept in between, as pip leaves it. CPU time counts beside the
clock, because other work on the machine disturbs it less. The output is checked; torch must not be among the modules.
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import polars as pl

from benchmarks.models import export_default, write_rows

ROWS = 1000
IMPORTS = "import sys, at_infer.cli, at_infer.scoring.score_file, onnxruntime; assert 'torch' not in sys.modules"


def seconds(arguments: list[str], bytecode: Path) -> tuple[float, float]:
    """What one process takes by the clock, and of the CPUs."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    before, begin = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(
        [sys.executable, *arguments],
        check=True,
        capture_output=True,
        env=kept | {"PYTHONPYCACHEPREFIX": str(bytecode)},
    )
    taken, after = time.perf_counter() - begin, resource.getrusage(resource.RUSAGE_CHILDREN)
    return taken, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    """Run, print a table and one JSON line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--engine", type=Path, help="a default model of 25 columns; or one is made")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        data, output = folder / "data.parquet", folder / "scores.parquet"
        write_rows(data, ROWS)
        model = args.engine or export_default(folder)
        score = ["-m", "at_infer", "score", str(data), "--engine", str(model), "-o", str(output), "--overwrite"]
        libraries = ["-c", "import polars, onnxruntime"]
        contestants = {"python": ["-c", "pass"], "libraries": libraries, "imports": ["-c", IMPORTS], "score": score}
        times: dict[str, list[tuple[float, float]]] = {title: [] for title in contestants}
        for _ in range(args.repeats + 1):
            for title, arguments in contestants.items():
                times[title].append(seconds(arguments, folder / "bytecode"))
        assert pl.read_parquet(output).height == ROWS
    medians, cpu = (
        {title: statistics.median(one[k] for one in taken[1:]) for title, taken in times.items()} for k in (0, 1)
    )
    for title, taken_s in medians.items():
        print(f"{title:10}{taken_s:8.2f} s{min(times[title])[0]:8.2f} s at best{cpu[title]:8.2f} s of CPU")
    args.engine = args.engine and "a default model"
    print(json.dumps({"benchmark": "startup", **vars(args), "median_s": medians, "cpu_s": cpu}))


if __name__ == "__main__":
    main()
