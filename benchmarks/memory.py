"""Peak memory of `at-infer score`: sixteen times the rows should need no more.

    python -m benchmarks.memory [--rows 500000] [--times 16]

A file of `--rows` rows and one of `--times` as many, 25 columns, each scored by a process of its own with the default
model; then a model of the paper's size on fewer rows.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import polars as pl

from at_infer.config import ScoreConfig
from benchmarks.models import export, export_default, write_rows

PROGRAM = """
import sys
from at_infer.memory import own_memory
own_memory()  # as the command does, before it imports polars
from at_infer.cli import app
from benchmarks.peak_memory import peak_mb
try:
    app(sys.argv[1:])
except SystemExit as exit_:
    code = exit_.code
print(int(peak_mb()), code)
"""


def peak_mb(data: Path, model: Path, output: Path) -> int:
    """Peak resident memory of one run."""
    return score_apart(data, model, output)[1]


def score_apart(data: Path, model: Path, output: Path) -> tuple[dict[str, Any], int]:
    """Score in a process of its own: its summary and peak resident memory, after checking that it scored every row."""
    words = ["score", str(data), "--engine", str(model), "-o", str(output), "--overwrite", "--json"]
    run = subprocess.run([sys.executable, "-c", PROGRAM, *words], capture_output=True, text=True, check=True)
    summary, last = run.stdout.strip().splitlines()
    peak, code = last.split()
    rows = pl.scan_parquet(data).select(pl.len()).collect().item()
    assert code in ("0", "None"), run.stderr
    told: dict[str, Any] = json.loads(summary)
    assert told["rows"] == pl.scan_parquet(output).select(pl.len()).collect().item() == rows
    assert pl.scan_parquet(output).select(pl.col("score").null_count()).collect().item() == 0
    return told, int(peak)


def main() -> None:
    """Run, print a table and one JSON line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=500_000)
    parser.add_argument("--times", type=int, default=16, help="how many times as many rows the large file has")
    parser.add_argument("--wide-rows", type=int, default=200_000, help="rows through the model 512 wide")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "default").mkdir()
        (folder / "wide").mkdir()
        default = export_default(folder / "default")
        wide = export(folder / "wide", 512, ScoreConfig())
        peaks = {}
        for title, rows, model in (
            ("1x", args.rows, default),
            (f"{args.times}x", args.times * args.rows, default),
            ("512 wide", args.wide_rows, wide),
        ):
            write_rows(folder / "data.parquet", rows)
            peaks[title] = peak_mb(folder / "data.parquet", model, folder / "scores.parquet")
            print(f"{title:10}{rows:12} rows{peaks[title]:8} MB")
    ratio = peaks[f"{args.times}x"] / peaks["1x"]
    print(f"{args.times} times the rows: {ratio:.2f}x the memory")
    print(json.dumps({"benchmark": "memory", **vars(args), "peak_mb": peaks, "ratio": round(ratio, 3)}))


if __name__ == "__main__":
    main()
