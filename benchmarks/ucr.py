"""UCR archive: is the highest score of a series near its one anomaly? The default, the paper's score, simple methods.

    python -m benchmarks.ucr --data DATA --work WORK [--size tiny] [--peers PYTHON] [--out benchmarks/results/ucr.json]

`DATA/ucr` has a file per series and metadata.csv. Each series gets a model of its own by `at-infer train` with nothing
else said; with `--size` a network of `benchmarks.reproduce` in its place, whose scores are the paper's. An answer is
right if the row with the highest score is at most 100 rows from the anomaly, or as many as the anomaly is long, as in
the contest (Wu and Keogh 2021). PYTHON is an interpreter with stumpy: the distance of each 100 rows to the most similar
ones of the training part. A run that was stopped goes on from `--work`; series are taken in an order that spreads over
the archive, so that a part of them is a fair part.
"""

import argparse
import json
import subprocess
import tempfile
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import torch
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from at_infer.evaluation.metrics.alarms import harmonic, point_adjusted
from at_infer.evaluation.metrics.runs import runs
from at_infer.output import atomic_path
from benchmarks.quality.baselines import moving_mean, pca, scaled
from benchmarks.quality.commands import score, train
from benchmarks.quality.series import Series
from benchmarks.reproduce.measures import vus_pr
from benchmarks.reproduce.outputs import scored
from benchmarks.reproduce.sources import prepare
from benchmarks.reproduce.tables import STRATEGIES, TABLES, size_in_words, training_of
from benchmarks.reproduce.trainings import SIZES
from training.device import flush_denormals

Floats = NDArray[np.float32]

WINDOW = 100
SLOP = 100
RATIO = 0.01
SUMMARY = ("benchmark", "size", "series", "of", "means", "partly")
MEANS = ("found", "vus_pr", "pa_precision", "pa_recall")
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


def by_default(series: Series, folder: Path) -> Iterator[tuple[str, Floats]]:
    """Scores of a model of `at-infer train`."""
    model = train(series, folder, 0)
    yield "default", score(series.test, model)
    for mode in ("paper", "reconstruction"):
        yield f"mode {mode}", score(series.test, model.with_name("model.associations.onnx"), "--score-mode", mode)


def by_network(series: Series, size: str, data: Path, work: Path) -> Iterator[tuple[str, Floats]]:
    """Scores of the paper's kind of network, trained as the tables of `benchmarks.reproduce` are."""
    dataset = f"ucr/{series.name}"
    training = training_of(TABLES["main"].variants[0], dataset, size, 0)
    outputs = scored(training, prepare(dataset, data, work), work).test
    for mode in STRATEGIES:
        yield f"mode {mode}", outputs.scores(mode, training)


def measure(
    series: Series, anomaly: tuple[int, int], of_model: Iterable[tuple[str, Floats]], peers: Path | None
) -> dict[str, Any]:
    """Everything about one series."""
    start = time.process_time()
    scores = dict(of_model)
    seconds = time.process_time() - start
    scores |= dict(simple(series, peers))
    adjusted = {name: _adjusted(of_rows, series.labels) for name, of_rows in scores.items()}
    return {
        "name": series.name,
        "cpu_s": round(seconds, 1),
        "rows": {"train": len(series.train), "test": len(series.test)},
        "found": {name: is_found(of_rows, anomaly) for name, of_rows in scores.items()},
        "pa_precision": {name: of["pa_precision"] for name, of in adjusted.items()},
        "pa_recall": {name: of["pa_recall"] for name, of in adjusted.items()},
        "vus_pr": {name: round(vus_pr(of_rows, series.labels), 2) for name, of_rows in scores.items()},
    }


def _adjusted(scores: Floats, labels: NDArray[np.bool_]) -> dict[str, float]:
    """Point-adjusted, in percent, with 1 % of the test rows flagged: no method has validation scores here."""
    alarms = scores > np.nanquantile(scores, 1 - RATIO)
    found = point_adjusted(runs(labels), runs(alarms))
    return {name: round(100 * (found[name] or 0.0), 2) for name in ("pa_precision", "pa_recall")}


def summarise(measured: list[dict[str, Any]], listed: int, size: str) -> dict[str, Any]:
    """Means over the series; beside a method that ran on some of them only, all methods on those."""
    partly: dict[str, Any] = {}
    for name in dict.fromkeys(name for one in measured for name in one["found"]):
        there = [one for one in measured if name in one["found"]]
        if len(there) < len(measured):
            partly[name] = {"series": len(there), "means": means(there)}
    found = {"benchmark": "ucr", "size": size, "series": len(measured), "of": listed, "means": means(measured)}
    return found | {"partly": partly, "cpu_s": round(sum(one["cpu_s"] for one in measured)), "per_series": measured}


def means(measured: list[dict[str, Any]]) -> dict[str, dict[str, float]]:
    """Of every method that ran on all of them; F1 is that of mean precision and mean recall, as in the paper."""
    table = {}
    for name in measured[0]["found"]:
        if all(name in one["found"] for one in measured):
            of = {key: float(np.mean([one[key][name] for one in measured])) for key in MEANS}
            table[name] = {
                "accuracy": round(100 * of["found"], 1),
                "vus_pr": round(of["vus_pr"], 1),
                "pa_f1": round(harmonic(of["pa_precision"], of["pa_recall"]), 1),
            }
    return table


def main() -> None:
    """Measure, and sum up what is there."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--work", type=Path, required=True, help="where models and figures are kept")
    parser.add_argument("--peers", type=Path, help="a Python that has stumpy")
    parser.add_argument("--size", choices=tuple(SIZES), help="a network of the paper's kind instead of the default")
    parser.add_argument("--series", type=int, default=200, help="at most so many")
    parser.add_argument("--out", type=Path, help="where the summary goes")
    args = parser.parse_args()
    torch.set_num_threads(1)
    flush_denormals()
    measured = []
    size = "default of at-infer train" if args.size is None else size_in_words(args.size)
    listed = len(pl.read_csv(args.data / "ucr" / "metadata.csv"))
    for i, (series, anomaly) in enumerate(load(args.data / "ucr")):
        if i == args.series:
            break
        folder = args.work / f"ucr-{args.size or 'whole'}-{series.name}"
        path = folder / "figures.json"
        if not path.exists():
            folder.mkdir(parents=True, exist_ok=True)
            of_model = (
                by_default(series, folder) if args.size is None else by_network(series, args.size, args.data, args.work)
            )
            with atomic_path(path) as temporary:
                temporary.write_text(json.dumps(found := measure(series, anomaly, of_model, args.peers)))
            print(series.name, found["cpu_s"], found["found"], flush=True)
        measured.append(json.loads(path.read_text()))
        summary = summarise(measured, listed, size)
        if args.out is not None:
            args.out.write_text(json.dumps(summary) + "\n")
    for name, of in summary["means"].items():
        print(f"{name:<28}{of['accuracy']:>8.1f} %{of['vus_pr']:>8.1f}{of['pa_f1']:>8.1f}")
    for name, there in summary["partly"].items():
        print(f"{name:<28}{there['means'][name]['accuracy']:>8.1f} % of {there['series']} series")
    print(json.dumps({name: summary[name] for name in SUMMARY}))


if __name__ == "__main__":
    main()
