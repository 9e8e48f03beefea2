"""What the floor of the parts of a score is worth: scores of the same networks with others, in whole windows and live.

    python -m benchmarks.part_floor --data DATA --work WORK --out benchmarks/results/part_floor.json

Takes the models that `python -m benchmarks.quality` left in `--work`, and the rows of `python -m
benchmarks.live_quality`. The floor is recorded with a model and changes nothing but the last step of its scores;
1e-8 is that of earlier versions. A run that was stopped goes on.
"""

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from at_infer import ScoreOptions
from at_infer.models.statistics import ViewStatistics
from benchmarks.live_quality import arguments, conclude, kept, slice_of, trained
from benchmarks.quality.series import Series
from benchmarks.widths import score, worth

FLOORS = (1e-8, 0.001, 0.01, 0.03, 0.1, 0.3)
WAYS = {"whole": ScoreOptions(), "delay 25": ScoreOptions(align="last", delay=25)}


def floored(floor: float, known: ViewStatistics) -> ViewStatistics:
    """The same model with this floor."""
    return replace(known, part_floor=floor)


def measure(series: Series, model: Path, rows: int) -> dict[str, Any]:
    """VUS-PR of one series, by way and floor, of rows that have a live score."""
    part, found = slice_of(series.labels, rows), dict[str, dict[str, float]]()
    scores = {
        way: {str(floor): score(series, part, model, partial(floored, floor), options) for floor in FLOORS}
        for way, options in WAYS.items()
    }
    scored = np.isfinite(scores["delay 25"][str(FLOORS[0])])
    for way, of_floors in scores.items():
        found[way] = {name: worth(of[scored], series.labels[part][scored])["vus_pr"] for name, of in of_floors.items()}
    return {"group": series.group, "name": series.name, "vus_pr": found}


def summarise(measured: list[dict[str, Any]]) -> dict[str, Any]:
    """Means over the series of each group, by way and floor."""
    tables: dict[str, Any] = {}
    for way in WAYS:
        for floor in map(str, FLOORS):
            by_group: dict[str, list[float]] = {}
            for one in measured:
                by_group.setdefault(one["group"], []).append(one["vus_pr"][way][floor])
            means = {group: round(float(np.mean(values)), 2) for group, values in by_group.items()}
            tables.setdefault(way, {})[floor] = means
    return {"benchmark": "part_floor", "vus_pr": tables, "per_series": measured}


def markdown(summary: dict[str, Any]) -> str:
    """The table of docs/method.md."""
    groups = list(summary["vus_pr"]["whole"][str(FLOORS[0])])
    lines = [f"| VUS-PR: floor | {' | '.join(groups)} | mean |", "| --- " * (len(groups) + 2) + "|"]
    for way, title in (("whole", ""), ("delay 25", ", live, 25 rows late")):
        for floor, of in summary["vus_pr"][way].items():
            cells = [f"{value:.1f}" for value in [*of.values(), np.mean([*of.values()])]]
            lines.append(f"| {floor}{title} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    """Measure, and sum up what is there."""
    args = arguments(__doc__)
    measured = []
    for series, folder, live in trained(args):
        if live:
            once = partial(measure, series, folder / "model.onnx", args.rows)
            measured.append(kept(folder / f"part-floor-{args.rows}.json", once))
            print(series.group, series.name, measured[-1]["vus_pr"], flush=True)
    summary = summarise(measured)
    conclude(args, summary, markdown(summary), "vus_pr")


if __name__ == "__main__":
    main()
