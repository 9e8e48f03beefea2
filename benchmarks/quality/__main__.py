"""What a user gets on labelled data: VUS-PR, AUC-PR and event recall of `at-infer train` and `score`, and of baselines.

    python -m benchmarks.quality --data DATA --work WORK --out benchmarks/results/quality.json

`--data` has a folder per data set: train.parquet and test.parquet with the columns `channel`, `timestamp` and, in the
test part, `label`; ucr has a file per series and metadata.csv. Each series gets a model of its own, by the commands
themselves with nothing but names of columns. Models and figures are kept in `--work`: a run that was stopped goes on
from there, and several runs may share the work (`--part 0/2`, `--part 1/2`). Seeds other than 0 measure the default
alone; `--learn ROWS` leaves only the last rows of each training part, as of a machine that was set up this week; a run
with `--baselines FILE` measures the fusion, with a network and without, and takes the others from an
earlier summary: after a change of the formula of the score they are the same.
"""

import argparse
import json
import time
from pathlib import Path
from typing import Any

import torch

from at_infer.output import atomic_path
from benchmarks.quality.baselines import baselines, without_network
from benchmarks.quality.commands import folder_of, score, train
from benchmarks.quality.series import GROUPS, Series, load
from benchmarks.quality.summary import DEFAULT, print_table, summarise
from benchmarks.quality.worth import worth

NAMED_MODES = {
    "network: shape": ("--score-mode", "centred", "--normalise-errors", "--smooth", 50, "--threshold", 1),
    "network: level": ("--score-mode", "reconstruction", "--normalise-errors", "--smooth", 50, "--threshold", 1),
    "paper's score": ("--score-mode", "paper"),
}
"""Single views of the same network, and what the paper does with it."""


def measure(series: Series, folder: Path, seed: int, known: dict[str, Any] | None) -> dict[str, Any]:
    """Everything about one series; the default alone for further seeds, or if the others are known."""
    start = time.process_time()
    model = train(series, folder, seed)
    scores = {DEFAULT: score(series.test, model)}
    seconds = time.process_time() - start
    if seed == 0 and known is None:
        associations = model.with_name("model.associations.onnx")
        scores |= {name: score(series.test, associations, *options) for name, options in NAMED_MODES.items()}
        scores |= dict(baselines(series))
    elif seed == 0:
        scores |= without_network(series)
    rows_a_day = GROUPS[series.group].rows_a_day
    found = (known or {}) | {name: worth(of_rows, series.labels, rows_a_day) for name, of_rows in scores.items()}
    return {"group": series.group, "name": series.name, "seed": seed, "cpu_s": round(seconds, 1), "worth": found}


def main() -> None:
    """Measure, and sum up what is there."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--work", type=Path, required=True, help="where models and figures are kept")
    parser.add_argument("--out", type=Path, help="where the summary goes")
    parser.add_argument("--groups", default=",".join(GROUPS), help="that are measured; all that is kept is summed up")
    parser.add_argument("--every", type=int, default=1, help="measure every K-th series only")
    parser.add_argument("--part", default="0/1", help="i/n: only the series whose turn it is")
    parser.add_argument("--seeds", default="0", help="of the training, comma separated")
    parser.add_argument("--learn", type=int, metavar="ROWS", help="only the last ROWS of each training part")
    parser.add_argument("--baselines", type=Path, help="summary of an earlier run to take all but the default from")
    args = parser.parse_args()
    known = {}
    if args.baselines is not None:
        before = json.loads(args.baselines.read_text())["per_series"]
        known = {(one["group"], one["name"]): one["worth"] for one in before if one["seed"] == 0}
    torch.set_num_threads(1)
    turn, turns = (int(number) for number in args.part.split("/"))
    wanted = args.groups.split(",")
    measured, counts = [], dict.fromkeys(GROUPS, 0)
    for group in GROUPS:
        for i, series in enumerate(load(args.data, group)):
            counts[group] += 1
            if args.learn:
                series = series._replace(name=f"{series.name}-{args.learn}", train=series.train[-args.learn :])
            for seed in map(int, args.seeds.split(",")):
                folder = folder_of(args.work, series, seed)
                path = folder / "figures.json"
                mine = i % args.every == 0 and i // args.every % turns == turn
                if group in wanted and mine and not path.exists():
                    folder.mkdir(parents=True, exist_ok=True)
                    found = measure(series, folder, seed, known.get((group, series.name)) if seed == 0 else None)
                    with atomic_path(path) as temporary:
                        temporary.write_text(json.dumps(found))
                    print(group, series.name, seed, found["cpu_s"], found["worth"][DEFAULT], flush=True)
                if path.exists():
                    measured.append(json.loads(path.read_text()))
    if not measured:
        parser.error("nothing is measured yet")
    summary = summarise(measured, counts)
    for metric in ("vus_pr", "auc_pr", "event_recall"):
        print_table(summary["means"], metric)
    if args.out is not None:
        args.out.write_text(json.dumps(summary, indent=1) + "\n")
    print(json.dumps({name: summary[name] for name in ("benchmark", "series", "regret")}))


if __name__ == "__main__":
    main()
