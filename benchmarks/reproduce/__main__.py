"""The tables of the Anomaly Transformer paper, reproduced from a folder of labelled data.

    python -m benchmarks.reproduce main --data DATA --work WORK --datasets msl,smap
    python -m benchmarks.reproduce criterion --data DATA --work WORK --datasets msl
    python -m benchmarks.reproduce strategy --data DATA --work WORK --datasets generated --size reduced --seeds 3
    python -m benchmarks.reproduce ucr --data DATA --work WORK --size reduced --series 10
    python -m benchmarks.reproduce baselines --data DATA --work WORK     (needs benchmarks/reproduce/requirements.txt)
    python -m benchmarks.reproduce report

Tables: main, published, leaking, criterion, strategy, prior, distance, layers-used, depth, width, window, heads,
lambda, threshold, contrast, floor, ucr; baselines are other detectors beside them, chance are scores that never read
the data, curves are what the paper shows as figures. Each writes benchmarks/results/reproduce_TABLE.json, data set by
data set; `report` makes docs/reproduction.md of these files, `python -m benchmarks.reproduce.figures` its figures.

DATA has a folder per data set. msl, smap, smd, asd: train.parquet and test.parquet with `timestamp`, `channel`, the
features and, in test, `label`. ucr: NAME.parquet and metadata.csv. psm: train.csv, test.csv, test_label.csv. swat: the
publishers' sheets saved as SWaT_Dataset_Normal_v1.csv (or v0) and SWaT_Dataset_Attack_v0.csv, or swat_train2.csv and
swat2.csv. smd also as published: train/, test/ and test_label/ with machine-1-1.txt and so on. msl, smap and smd also
as NAME_train.npy, NAME_test.npy and NAME_test_label.npy. `generated` (NeurIPS-TS) needs no file.

WORK keeps every training and its outputs: trainings that tables share are made once, and a run that was stopped
(Ctrl-C) goes on from there with the same command. Use one WORK per DATA.
"""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import torch

from at_infer.errors import AtInferError, ConfigError
from at_infer.interrupt import signals_as_ctrl_c
from at_infer.output import atomic_path
from benchmarks.reproduce.baselines import run_baselines
from benchmarks.reproduce.curves import run_curves
from benchmarks.reproduce.floor import run_floor, training_at
from benchmarks.reproduce.measures import Truth, chance_spread
from benchmarks.reproduce.paper import ratio_of
from benchmarks.reproduce.report import DOCUMENT, RESULTS, document, read_results
from benchmarks.reproduce.sources import names, prepare, ucr_series
from benchmarks.reproduce.tables import TABLES, run_contrast, run_table, run_ucr
from benchmarks.reproduce.trainings import SIZES
from training.device import flush_denormals

COMMANDS = (*TABLES, "contrast", "curves", "floor", "ucr", "baselines", "chance", "report")


def run(args: argparse.Namespace) -> None:
    """One table on every data set asked for, or the report."""
    if args.table == "report":
        with atomic_path(args.out) as temporary:
            temporary.write_text(document(read_results(args.results)), encoding="utf-8")
        print(args.out)
        return
    if args.data is None or args.work is None:
        raise ConfigError(f"{args.table}: needs --data and --work; see --help for their layout")
    flush_denormals()
    torch.set_num_threads(args.threads)
    seeds = range(args.seeds)
    if args.table == "ucr":
        series = every(ucr_series(args.data), args.series)
        keep(args, "ucr", run_ucr(series, args.size, seeds, args.data, args.work))
        return
    for dataset in args.datasets.split(",") if args.datasets else names(args.data):
        if args.table == "contrast":
            found = run_contrast(dataset, args.size, seeds, args.data, args.work)
        elif args.table == "chance":
            truth, ratio = Truth.read(prepare(dataset, args.data, args.work)), ratio_of(dataset)
            found = {"ratio": ratio, "test": truth.describe(), "rows": chance_spread(truth, ratio)}
        elif args.table == "floor":
            found = run_floor(dataset, training_at(dataset, args.size), seeds, args.data, args.work)
        elif args.table == "curves":
            found = run_curves(dataset, args.size, seeds, args.data, args.work)
        elif args.table == "baselines":
            found = run_baselines(dataset, args.data, args.work)
        else:
            found = run_table(args.table, dataset, args.size, seeds, args.data, args.work)
        keep(args, dataset, found)


def keep(args: argparse.Namespace, dataset: str, found: dict[str, Any]) -> None:
    """Put the results of one data set into the file of the table, and print them."""
    path = args.results / f"reproduce_{args.table}.json"
    kept = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {"table": args.table, "datasets": {}}
    kept["datasets"] = dict(sorted((kept["datasets"] | {dataset: found}).items()))
    args.results.mkdir(parents=True, exist_ok=True)
    with atomic_path(path) as temporary:
        temporary.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")
    for row in found["rows"]:
        figures = ", ".join(f"{name} {value:g}" for name, value in (row["figures"] or {}).items()) or row["why"]
        print(f"{dataset} {row['variant']} {row.get('mode', row.get('score', ''))}: {figures}", flush=True)


def every(series: list[str], count: int | None) -> list[str]:
    """So many of the names, spread evenly."""
    if count is None or count >= len(series):
        return series
    return [series[i * len(series) // count] for i in range(count)]


def main() -> None:
    """Run; Ctrl-C or SIGTERM keeps what is done."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.reproduce",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("table", choices=COMMANDS, metavar="TABLE")
    parser.add_argument("--data", type=Path, help="folder with a folder per data set")
    parser.add_argument("--work", type=Path, help="where trainings and their outputs are kept")
    parser.add_argument("--datasets", help="names, separated by commas; default: all that DATA has, and generated")
    parser.add_argument("--size", choices=tuple(SIZES), default="full", help="full is the paper's")
    parser.add_argument("--seeds", type=int, default=1, help="trainings that are averaged: seeds 0, 1, ...")
    parser.add_argument("--series", type=int, help="ucr: only so many series, spread evenly over the archive")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder of the JSON files")
    parser.add_argument("--out", type=Path, default=DOCUMENT, help="report: the page to write")
    args = parser.parse_args()
    try:
        with signals_as_ctrl_c():
            run(args)
    except AtInferError as error:
        print(f"error: {error}", file=sys.stderr)
        raise SystemExit(1) from None
    except KeyboardInterrupt:
        print("interrupted; the same command goes on from here", file=sys.stderr)
        raise SystemExit(130) from None


if __name__ == "__main__":
    main()
