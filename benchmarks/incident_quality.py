"""What the default alarm is worth: incidents of `at-infer score --incidents` against labels, with no option but names.

    python -m benchmarks.incident_quality --data DATA --work WORK --out benchmarks/results/incident_quality.json

The series, models and commands are those of `benchmarks.quality`, whose WORK can be given; a run that was stopped goes
on from there. An incident is false if it touches no anomaly; one that begins up to 50 rows behind an anomaly touches
it (`at-infer evaluate`). Anomalies up to 50 rows apart count as one. The threshold aims at one false incident in 1440
rows, or a day where times are dates, as counted on the validation part. `--false-alarms` tries other rates.
"""

import argparse
import json
import statistics
import tempfile
from pathlib import Path
from typing import Any

import polars as pl
import torch

from at_infer.evaluation.incidents import count_incidents
from at_infer.incidents.defaults import rules_of_scores
from at_infer.output import atomic_path
from at_infer.tables.scores import ScoredFile
from benchmarks.quality.commands import at_infer, folder_of, train
from benchmarks.quality.series import GROUPS, Series, load

Measured = dict[str, Any]


def measure(series: Series, model: Path, rates: list[str]) -> dict[str, Measured]:
    """Incidents of one series, by rate: the default one, and those asked for."""
    found = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        rows, scores, labels = (folder / f"{part}.parquet" for part in ("rows", "scores", "labels"))
        series.test.write_parquet(rows)
        keys = [column for column in ("timestamp",) if column in series.test.columns]
        pl.DataFrame([*series.test.select(keys), pl.Series("label", series.labels)]).write_parquet(labels)
        for rate in ["default", *rates]:
            asked = [] if rate == "default" else ["--false-alarms", rate]
            options = ["--incidents", folder / "incidents.jsonl", "--overwrite", *asked]
            at_infer("score", rows, "--engine", model, "-o", scores, *options)
            file = ScoredFile(str(scores), str(labels))
            rules = rules_of_scores(file.properties, source=str(scores))
            figures = count_incidents(file, rules, rows_per_day=GROUPS[series.group].rows_a_day, scored_rows=file.rows)
            found[rate] = {
                "threshold": round(rules.open_at, 4),
                "asked": rules.asked,
                "rows": file.rows,
                "anomalies": figures.anomalies,
                "found": figures.found,
                "incidents": figures.incidents,
                "false": figures.false_incidents,
                "delay_rows": figures.delay_rows,
            }
    return found


def summarise(measured: list[Measured]) -> dict[str, Any]:
    """By rate and group: recall and precision over all its incidents, and how many are false."""
    table: dict[str, Any] = {}
    for rate in measured[0]["found"]:
        for group in dict.fromkeys(one["group"] for one in measured):
            of_group = [one["found"][rate] for one in measured if one["group"] == group and rate in one["found"]]
            total = {name: sum(one[name] for one in of_group) for name in ("anomalies", "found", "incidents", "false")}
            rows = sum(one["rows"] for one in of_group)
            delays = [one["delay_rows"] for one in of_group if one["delay_rows"] is not None]
            table.setdefault(rate, {})[group] = total | {
                "series": len(of_group),
                "recall": round(100 * total["found"] / total["anomalies"], 1),
                "precision": round(100 * (1 - total["false"] / max(total["incidents"], 1)), 1),
                "false_in_1440_rows": round(1440 * total["false"] / rows, 2),
                "silent_series": sum(one["incidents"] == 0 for one in of_group),
                "median_delay_rows": round(statistics.median(delays), 1) if delays else None,
            }
    return table


def main() -> None:
    """Measure, print a table and one JSON line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--work", type=Path, required=True, help="where models and figures are kept")
    parser.add_argument("--out", type=Path, help="where the summary goes")
    parser.add_argument("--groups", default=",".join(GROUPS))
    parser.add_argument("--part", default="0/1", help="i/n: only the series whose turn it is")
    parser.add_argument("--false-alarms", default="", help="further rates, comma separated")
    args = parser.parse_args()
    torch.set_num_threads(1)
    turn, turns = (int(number) for number in args.part.split("/"))
    rates = [rate for rate in args.false_alarms.split(",") if rate]
    measured = []
    for group in args.groups.split(","):
        for i, series in enumerate(load(args.data, group)):
            folder = folder_of(args.work, series, 0)
            path = folder / "incidents.json"
            if i % turns == turn and not path.exists():
                folder.mkdir(parents=True, exist_ok=True)
                found = measure(series, train(series, folder, 0), rates)
                with atomic_path(path) as temporary:
                    temporary.write_text(json.dumps({"group": group, "name": series.name, "found": found}))
                print(group, series.name, found["default"], flush=True)
            if path.exists():
                measured.append(json.loads(path.read_text()))
    table = summarise(measured)
    for rate, groups in table.items():
        print(f"\n{rate:10}{'recall':>8}{'precision':>11}{'false/1440':>12}{'delay':>7}{'silent':>8}")
        for group, of in groups.items():
            cells = f"{of['recall']:8}{of['precision']:11}{of['false_in_1440_rows']:12}"
            print(f"{group:10}{cells}{of['median_delay_rows'] or 0:7}{of['silent_series']:8}")
    report = {"benchmark": "incident_quality", "rates": table, "per_series": measured}
    if args.out is not None:
        args.out.write_text(json.dumps(report, indent=1) + "\n")
    print(json.dumps({"benchmark": "incident_quality", "rates": table}))


if __name__ == "__main__":
    main()
