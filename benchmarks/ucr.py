"""UCR archive: is the highest score of a series near its one anomaly? The default, the paper's score, simple methods.

    python -m benchmarks.ucr --data DATA --work WORK [--peers PYTHON] [--out benchmarks/results/ucr.json]

`DATA/ucr` has a file per series and metadata.csv. Each series gets a model of its own by `at-infer train` with nothing
else said. An answer is right if the row with the highest score is at most 100 rows from the anomaly, or as many as the
anomaly is long, as in the contest (Wu and Keogh 2021). PYTHON is an interpreter with stumpy: the distance of each 100
rows to the most similar ones of the training part. A run that was stopped goes on from `--work`; series are taken
in an order that spreads over the archive, so that a part of them is a fair part.
"""

import argparse
import json
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import torch
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from at_infer.evaluation.metrics.alarms import point_adjusted
from at_infer.evaluation.metrics.runs import runs
from at_infer.output import atomic_path
from benchmarks.quality.baselines import moving_mean, pca, scaled
from benchmarks.quality.commands import score, train
from benchmarks.quality.series import Series
from benchmarks.quality.worth import worth

Floats = NDArray[np.float32]

WINDOW = 100
SLOP = 100
RATIO = 0.01
ROWS_A_DAY = 1440
MATRIX_PROFILE = """
import sys, numpy as np, stumpy
given = np.load(sys.argv[1])
found = stumpy.stump(given["test"], m=int(given["m"]), T_B=given["train"], ignore_trivial=False)
np.save(sys.argv[2], found[:, 0].astype(float))
"""


def load(folder: Path) -> Iterator[tuple[Series, tuple[int, int]]]:
    """Series and the rows of the anomaly in the test part, the archive crossed again and again in smaller steps."""
    listed = pl.read_csv(folder / "metadata.csv").sort("name").rows()
    order = list(dict.fromkeys(i for step in (8, 4, 2, 1) for i in range(0, len(listed), step)))
    for name, end, begin_fault, end_fault, rows in (listed[i] for i in order):
        table = pl.read_parquet(folder / f"{name}.parquet")
        labels = np.zeros(rows - end, np.bool_)
        labels[begin_fault - end : end_fault - end] = True
        yield Series("ucr", name, table[:end], table[end:], labels), (begin_fault - end, end_fault - end)


def simple(series: Series, peers: Path | None) -> Iterator[tuple[str, Floats]]:
    """Scores without a network."""
    learnt, test = scaled(*series.rows())
    yield "random", np.random.default_rng(0).random(len(test)).astype(np.float32)
    residual = np.square(test - moving_mean(test, 51))
    yield "moving average of 51 rows", moving_mean(residual, 50)[:, 0]
    points = [sliding_window_view(x[:, 0], WINDOW) for x in (learnt, test)]
    some = points[0][:: max(1, len(points[0]) // 20_000)]
    _, residuals = pca(np.ascontiguousarray(some), np.ascontiguousarray(points[1]))
    yield "Sub-PCA", _by_row(np.sqrt(np.square(residuals).sum(axis=1)), len(test))
    if peers is not None:
        with tempfile.TemporaryDirectory() as name:
            given, found = Path(name, "given.npz"), Path(name, "found.npy")
            np.savez(given, train=learnt[:, 0].astype(np.float64), test=test[:, 0].astype(np.float64), m=WINDOW)
            subprocess.run([peers, "-c", MATRIX_PROFILE, given, found], check=True, capture_output=True)
            distances = np.load(found)
        yield "matrix profile (stumpy)", _by_row(np.where(np.isfinite(distances), distances, 0), len(test))


def _by_row(of_windows: NDArray[Any], rows: int) -> Floats:
    """The score of a window belongs to its middle row."""
    before = WINDOW // 2
    return np.pad(of_windows.astype(np.float32), (before, rows - len(of_windows) - before), mode="edge")


def is_found(scores: Floats, anomaly: tuple[int, int]) -> bool:
    """The contest's criterion."""
    first, end = anomaly
    slop = max(SLOP, end - first)
    return bool(first - slop <= int(np.nanargmax(scores)) < end + slop)


def measure(series: Series, anomaly: tuple[int, int], folder: Path, peers: Path | None) -> dict[str, Any]:
    """Everything about one series."""
    start = time.process_time()
    model = train(series, folder, 0)
    scores = {"default": score(series.test, model)}
    seconds = time.process_time() - start
    associations = model.with_name("model.associations.onnx")
    for mode in ("paper", "reconstruction"):
        scores[f"mode {mode}"] = score(series.test, associations, "--score-mode", mode)
    scores |= dict(simple(series, peers))
    return {
        "name": series.name,
        "cpu_s": round(seconds, 1),
        "rows": {"train": len(series.train), "test": len(series.test)},
        "found": {name: is_found(of_rows, anomaly) for name, of_rows in scores.items()},
        "pa_f1": {name: round(100 * _adjusted(of_rows, series.labels), 2) for name, of_rows in scores.items()},
        "vus_pr": {name: worth(of_rows, series.labels, ROWS_A_DAY)["vus_pr"] for name, of_rows in scores.items()},
    }


def _adjusted(scores: Floats, labels: NDArray[np.bool_]) -> float:
    """Point-adjusted F1 with 1 % of the test rows flagged, as the paper has it."""
    alarms = scores > np.nanquantile(scores, 1 - RATIO)
    return point_adjusted(runs(labels), runs(alarms))["pa_f1"] or 0.0


def summarise(measured: list[dict[str, Any]], listed: int) -> dict[str, Any]:
    """Means over the series."""
    names = list(measured[0]["found"])
    table = {
        name: {
            "accuracy": round(100 * float(np.mean([one["found"][name] for one in measured])), 1),
            "vus_pr": round(float(np.mean([one["vus_pr"][name] for one in measured])), 1),
            "pa_f1": round(float(np.mean([one["pa_f1"][name] for one in measured])), 1),
        }
        for name in names
        if all(name in one["found"] for one in measured)
    }
    return {"benchmark": "ucr", "series": len(measured), "of": listed, "means": table, "per_series": measured}


def main() -> None:
    """Measure, and sum up what is there."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--work", type=Path, required=True, help="where models and figures are kept")
    parser.add_argument("--peers", type=Path, help="a Python that has stumpy")
    parser.add_argument("--series", type=int, default=200, help="at most so many")
    parser.add_argument("--out", type=Path, help="where the summary goes")
    args = parser.parse_args()
    torch.set_num_threads(1)
    measured = []
    listed = len(pl.read_csv(args.data / "ucr" / "metadata.csv"))
    for i, (series, anomaly) in enumerate(load(args.data / "ucr")):
        if i == args.series:
            break
        folder = args.work / f"ucr-whole-{series.name}"
        path = folder / "figures.json"
        if not path.exists():
            folder.mkdir(parents=True, exist_ok=True)
            with atomic_path(path) as temporary:
                temporary.write_text(json.dumps(found := measure(series, anomaly, folder, args.peers)))
            print(series.name, found["cpu_s"], found["found"], flush=True)
        measured.append(json.loads(path.read_text()))
        summary = summarise(measured, listed)
        if args.out is not None:
            args.out.write_text(json.dumps(summary, indent=1) + "\n")
    for name, of in summary["means"].items():
        print(f"{name:<28}{of['accuracy']:>8.1f} %{of['vus_pr']:>8.1f}{of['pa_f1']:>8.1f}")
    print(json.dumps({name: summary[name] for name in ("benchmark", "series", "of", "means")}))


if __name__ == "__main__":
    main()
