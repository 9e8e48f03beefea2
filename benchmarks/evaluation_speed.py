"""Seconds that `at-infer evaluate` takes, and how they grow with the rows.

    python -m benchmarks.evaluation_speed [--rows 10000000] [--series 50] [--check-rows 3000] [--data DIR]

Labels in segments, and scores that know a little of them, go through files as a user's would: read, joined, every
metric for the score and its three baselines, as one series and per series, and the ROC. The first `--check-rows` rows
are also evaluated by definition, threshold by threshold and row by row; the answers must agree. `--data`, a folder laid
out like the datasets of the benchmarks (smap/test.parquet, ...), adds what chance reaches there by point adjustment.
"""

import argparse
import json
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from at_infer.evaluation.evaluate import evaluate
from at_infer.evaluation.metrics.alarms import point_adjusted
from at_infer.evaluation.metrics.runs import runs
from at_infer.tables.labels import read_labelled
from at_infer.tables.scores import ScoredFile
from at_infer.thresholds.choose import EvaluationThreshold, choose_for_evaluation
from benchmarks.peak_memory import peak_mb
from tests import metric_oracles as oracle

DELTA = 2.5


def write(folder: Path, rows: int, series: int) -> tuple[Path, Path]:
    """Scores and labels, 10 % anomalous in segments of up to 600 rows."""
    rng = np.random.default_rng(0)
    labels = np.zeros(rows, np.uint8)
    for start in rng.integers(0, rows, rows // 2_850):
        labels[start : start + rng.integers(1, 600)] = 1
    scores = rng.standard_normal(rows, np.float32) + labels
    keys = pl.DataFrame(
        {
            "host": pl.Series([f"{i:05}" for i in range(series)]).gather(np.arange(rows) * series // rows),
            "ts": pl.int_range(rows, eager=True),
        }
    )
    paths = folder / "scores.parquet", folder / "test.parquet"
    keys.with_columns(score=pl.Series(scores)).write_parquet(paths[0])
    keys.with_columns(label=pl.Series(labels)).write_parquet(paths[1])
    return paths


def timed(folder: Path, rows: int, series: int) -> dict[str, Any]:
    """Seconds of reading and of everything else."""
    scores, labels = write(folder, rows, series)
    begin, begin_cpu = time.perf_counter(), time.process_time()
    table = read_labelled(ScoredFile(str(scores), str(labels)))
    read_s = time.perf_counter() - begin
    validation = folder / "validation.parquet"
    pl.DataFrame({"score": np.random.default_rng(1).standard_normal(100_000, np.float32)}).write_parquet(validation)
    asked = EvaluationThreshold(delta=DELTA, validation=str(validation))
    threshold = choose_for_evaluation(table.scores, {}, asked, source=str(scores))
    found = evaluate(table, threshold)
    seconds, cpu_s = time.perf_counter() - begin, time.process_time() - begin_cpu
    return {
        "rows": found.rows,
        "series": len(found.series),
        "seconds": seconds,
        "cpu_s": cpu_s,
        "read_s": read_s,
    }


def check(folder: Path, rows: int) -> None:
    """The first metrics by definition; raises where they differ."""
    scores, labels = write(folder, rows, 1)
    table = read_labelled(ScoredFile(str(scores), str(labels)))
    threshold = choose_for_evaluation(table.scores, {}, EvaluationThreshold(delta=DELTA), source="scores")
    found = {name: of["score"] for name, of in evaluate(table, threshold).concatenated.items()}
    truth, alarms = table.labels, table.scores > np.float32(DELTA)
    areas = np.mean([oracle.range_areas(table.scores, truth, width) for width in range(101)], axis=0)
    expected = {
        "vus_roc": areas[0],
        "vus_pr": areas[1],
        "f1": oracle.f1(alarms, truth),
        "pa_f1": oracle.f1(oracle.adjusted(alarms, truth), truth),
        "range_precision": oracle.range_reward(alarms, truth),
        "range_recall": oracle.range_reward(truth, alarms),
    }
    for name, value in expected.items():
        np.testing.assert_allclose(np.float64(found[name] or 0.0), value, rtol=1e-9, err_msg=name)


def chance(data: Path) -> dict[str, dict[str, float]]:
    """Point-adjusted F1 of an alarm on one row in a hundred; means over all first rows, and over ten seeds."""
    found = {}
    for path in sorted(data.glob("*/test.parquet")):
        labels: NDArray[np.bool_] = pl.read_parquet(path, columns=["label"])["label"].to_numpy() > 0
        truth = runs(labels)

        def adjusted(alarms: NDArray[np.bool_], truth: Any = truth) -> float:
            return point_adjusted(truth, runs(alarms))["pa_f1"] or 0.0

        rows = np.arange(len(labels))
        found[path.parent.name] = {
            "every_100th": float(np.mean([adjusted(rows % 100 == first) for first in range(100)])),
            "random": float(
                np.mean([adjusted(np.random.default_rng(s).random(len(labels)) > 0.99) for s in range(10)])
            ),
        }
    return found


def main() -> None:
    """Run, compare, print a table and one JSON line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--series", type=int, default=50)
    parser.add_argument("--check-rows", type=int, default=3_000)
    parser.add_argument("--data", type=Path, default=None)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        check(folder, args.check_rows)
        print(f"{args.check_rows} rows agree with the definitions")
        runs_ = [timed(folder, rows, args.series) for rows in (args.rows // 100, args.rows // 10, args.rows)]
    for one in runs_:
        wall = f"{one['seconds']:>8.1f} s, {one['cpu_s']:.1f} s of CPU, reading {one['read_s']:.1f} s"
        print(f"{one['rows']:>12} rows{one['series']:>6} series{wall}")
    of_chance = {} if args.data is None else chance(args.data)
    for dataset, figures in of_chance.items():
        print(
            f"{dataset}: point-adjusted F1 {figures['every_100th']:.4f} every 100th row, {figures['random']:.4f} random"
        )
    report = {"benchmark": "evaluation_speed", "runs": runs_, "peak_mb": round(peak_mb()), "chance": of_chance}
    print(json.dumps(report))


if __name__ == "__main__":
    main()
