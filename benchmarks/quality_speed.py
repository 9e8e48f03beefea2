"""Quality over speed: who finds more, who scores faster, and is anybody better at both than the default?

    python -m benchmarks.quality_speed --data DATA/asd DATA/smd [--channels 8] [--keep FOLDER]
                                       [--figure docs/img/quality_speed.svg]

Each folder has train.parquet and test.parquet with the columns `timestamp`, `channel`, features and, in the test part,
`label`. Each contestant learns from all series of a training part once. Then they take turns: rows of the test part,
from Parquet file to Parquet file, in CPU time of one thread; those that are fast get them several times over. The
figure has the mean VUS-PR of the folders, and all rows over all time. Networks of at-infer are made as in
`benchmarks.distil`; `--keep` keeps their checkpoints. PyOD's Anomaly Transformer takes part if it is installed.
"""

import argparse
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import torch
from numpy.typing import NDArray
from sklearn.ensemble import IsolationForest

from at_infer.scoring.options import EngineOptions, ScoreOptions
from at_infer.scoring.score_file import score_file
from benchmarks.distil import arguments, make, mean_vus_pr, split
from benchmarks.quality.baselines import PCA_VARIANCE, SMOOTH, moving_mean
from benchmarks.quality.commands import at_infer
from benchmarks.quality_speed_figure import draw

Floats = NDArray[np.float32]
Score = Callable[[Path, Path], None]
"""From a Parquet file with rows to one with a column `score`."""
ScoreSeries = Callable[[Floats], Floats]
"""Scaled rows (n,F) of one series -> scores (n,)."""

TIMES = 8
"""How often the fast ones get the rows."""
SLOW = ("paper's size", "paper's size, paper's score", "PyOD")
FLOOR = 1e-4


def main() -> None:
    """Learn, score in turns, print a table, draw, and end in one JSON line."""
    parser = arguments(__doc__, "+")
    parser.add_argument("--figure", type=Path, help="an SVG file")
    args = parser.parse_args()
    args.score_mode = "fusion"
    torch.set_num_threads(1)
    groups = []
    for data in args.data:
        with tempfile.TemporaryDirectory() as name:
            kept = Path(name) if args.keep is None else args.keep / data.name
            kept.mkdir(parents=True, exist_ok=True)
            groups.append(run(args, data, Path(name), kept))
            print(json.dumps(groups[-1]), flush=True)
    report = combine(groups, args)
    for one in sorted(report["contestants"], key=lambda one: -one["vus_pr"]):
        print(f"{one['name']:30}{one['rows_per_s']:>10} rows/s  VUS-PR {one['vus_pr']:5.1f}")
    print("above and to the right of the default:", ", ".join(report["better_at_both"]) or "none")
    if args.figure is not None:
        args.figure.write_text(draw(report))
    print(json.dumps(report))


def run(args: argparse.Namespace, data: Path, folder: Path, kept: Path) -> dict[str, Any]:
    """One group of series; what is measured."""
    labels = split(data, args.channels, folder)
    make(args, folder, kept)
    at_infer("export", kept / "teacher.pt", "-o", folder / "paper", "--engine", "none", "--score-mode", "paper")
    quantised = ["-o", folder / "int8", "--engine", "none", "--precision", "int8-dynamic"]
    could_not_run = {}
    try:
        at_infer("export", kept / "default.pt", *quantised)
    except RuntimeError as error:  # some networks do not pass its parity check
        could_not_run["default, int8-dynamic"] = str(error).strip().splitlines()[-1]
    test = pl.read_parquet(folder / "test.parquet")
    copies = [test.with_columns(channel=pl.col("channel") + f"-{i}") for i in range(TIMES)]
    pl.concat(copies).write_parquet(folder / "long.parquet")
    contestants = by_engine(folder) | others(folder)
    for name in could_not_run:
        del contestants[name]
    spent: dict[str, list[float]] = {name: [] for name in contestants}
    scores: dict[str, Floats] = {}
    for _ in range(args.repeats):
        for name, score in contestants.items():
            slow = name in SLOW
            output = folder / "scores.parquet"
            began = time.process_time()
            score(folder / ("test.parquet" if slow else "long.parquet"), output)
            spent[name].append((time.process_time() - began) / (1 if slow else TIMES))
            scores[name] = pl.read_parquet(output)["score"].to_numpy()[: len(labels)]
    channel = test["channel"].to_numpy()
    return {
        "data": data.name,
        "series": len(np.unique(channel)),
        "rows": len(labels),
        "contestants": [
            {
                "name": name,
                "cpu_s": [round(one, 3) for one in spent[name]],
                "rows_per_s": round(len(labels) / statistics.median(spent[name])),
                "vus_pr": mean_vus_pr(scores[name], labels, channel),
            }
            for name in contestants
        ],
        "could_not_run": could_not_run,
    }


def combine(groups: list[dict[str, Any]], args: argparse.Namespace) -> dict[str, Any]:
    """Contestants that took part in every group: mean VUS-PR, and rows per second over all rows."""
    by_name = [{one["name"]: one for one in group["contestants"]} for group in groups]
    found = [
        {
            "name": name,
            "rows_per_s": round(
                sum(group["rows"] for group in groups)
                / sum(statistics.median(contestants[name]["cpu_s"]) for contestants in by_name)
            ),
            "vus_pr": round(statistics.mean(contestants[name]["vus_pr"] for contestants in by_name), 2),
        }
        for name in by_name[0]
        if all(name in contestants for contestants in by_name)
    ]
    default = next(one for one in found if one["name"] == "default")
    better = [
        one["name"] for one in found if one["vus_pr"] > default["vus_pr"] and one["rows_per_s"] > default["rows_per_s"]
    ]
    return {
        "benchmark": "quality_speed",
        "cpus": os.cpu_count(),
        "data": " and ".join(group["data"] for group in groups),
        "series": sum(group["series"] for group in groups),
        "teacher_steps": args.teacher_steps,
        "clock": "CPU time, Parquet file to Parquet file, one thread, in turns",
        "contestants": found,
        "better_at_both": better,
        "groups": groups,
    }


def by_engine(folder: Path) -> dict[str, Score]:
    """Networks of at-infer."""

    def engine(name: str, **options: Any) -> Score:
        def score(rows: Path, output: Path) -> None:
            chosen = ScoreOptions(**options)
            path, one_thread = folder / name / "model.onnx", EngineOptions(threads=1)
            score_file(rows, path, output, options=chosen, engine_options=one_thread, overwrite=True)

        return score

    return {
        "default": engine("default"),
        "default, int8-dynamic": engine("int8"),
        "paper's size": engine("teacher"),
        "paper's size, paper's score": engine("paper"),
        "distilled": engine("student"),
    }


def others(folder: Path) -> dict[str, Score]:
    """Detectors without at-infer, each fitted to all training rows; smoothed over 50 rows, as in benchmarks.quality."""
    table = pl.read_parquet(folder / "train.parquet").sort("channel", maintain_order=True)
    names = [name for name in table.columns if name not in ("timestamp", "channel")]
    train = table.select(names).to_numpy().astype(np.float32)
    mean, std = train.mean(axis=0), train.std(axis=0)
    std[std == 0] = 1
    series = [(one.select(names).to_numpy().astype(np.float32) - mean) / std for one in table.partition_by("channel")]
    learnt = np.concatenate(series)
    found: dict[str, ScoreSeries] = {}
    for width in (11, 51):
        usual = np.square(np.concatenate([x - moving_mean(x, width) for x in series])).mean(axis=0) + FLOOR
        found[f"moving average {width}"] = partial(_moving_average, width=width, usual=usual)
    _, s, v = np.linalg.svd(learnt[:: max(1, len(learnt) // 20_000)], full_matrices=False)
    kept = v[: int(np.searchsorted(np.cumsum(s**2) / (s**2).sum(), PCA_VARIANCE)) + 1]
    of_pca = np.square(learnt - learnt @ kept.T @ kept).mean(axis=0) + FLOOR
    found["PCA"] = lambda x: _error(x - x @ kept.T @ kept, of_pca)
    forest = IsolationForest(random_state=0, n_jobs=1).fit(learnt)
    found["IsolationForest"] = lambda x: _smooth(-forest.score_samples(x))
    if find_spec("pyod") is not None:
        found["PyOD"] = _pyod(learnt)

    def over_files(score: ScoreSeries) -> Score:
        def run(rows: Path, output: Path) -> None:
            given = pl.read_parquet(rows)
            x = (given.select(names).to_numpy().astype(np.float32) - mean) / std
            ends = np.flatnonzero(given["channel"].to_numpy()[1:] != given["channel"].to_numpy()[:-1]) + 1
            scores = np.concatenate([score(part) for part in np.split(x, ends)])
            given.select("timestamp", "channel", score=pl.Series(scores)).write_parquet(output)

        return run

    return {name: over_files(score) for name, score in found.items()}


def _moving_average(x: Floats, *, width: int, usual: Floats) -> Floats:
    return _error(x - moving_mean(x, width), usual)


def _error(residual: Floats, usual: Floats) -> Floats:
    return _smooth((np.square(residual) / usual).mean(axis=1))


def _smooth(scores: NDArray[Any]) -> Floats:
    return moving_mean(scores[:, None].astype(np.float32), SMOOTH)[:, 0]


def _pyod(learnt: Floats) -> ScoreSeries:
    from pyod.models.ts_anomaly_transformer import AnomalyTransformer

    detector = AnomalyTransformer(step=100, epochs=2, device="cpu")
    detector.fit(learnt)
    return lambda x: np.asarray(detector.decision_function(x), np.float32)


if __name__ == "__main__":
    main()
