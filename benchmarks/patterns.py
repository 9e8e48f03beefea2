"""What patterns are worth: scores of the same networks with other weights of them, in whole windows and live.

    python -m benchmarks.patterns --data DATA --work WORK --out benchmarks/results/patterns.json
    python -m benchmarks.patterns several --data DATA --work WORK --out benchmarks/results/patterns_several.json

Takes the models of a single feature, or of several, that `python -m benchmarks.quality` left in `--work`. The weight is
recorded with a model and changes nothing but the last step of its scores; weight 0 is the score without patterns.
`left out` is what the weight that is best on the other groups, by their mean VUS-PR, is worth on each group. Live rows
are those of `python -m benchmarks.live_quality`. A run that was stopped goes on.
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
from benchmarks.widths import METRICS, score, worth

WEIGHTS = {"one": (0, 1, 2, 3, 4, 6), "several": (0, 0.5, 1, 2)}
LIVE_WEIGHTS = {"one": (0, 1, 3), "several": (0, 1)}
"""Of models of one feature, and of several."""
DELAYS = (0, 10)


def weighted(weight: float, known: ViewStatistics) -> ViewStatistics:
    """The same model with this weight of its patterns."""
    return replace(known, pattern_weight=float(weight)) if weight else replace(known, patterns="", live_patterns="")


def kind_of(series: Series) -> str:
    """Whether its model has one feature, or several."""
    return "one" if series.rows()[1].shape[1] == 1 else "several"


def measure(series: Series, model: Path, *, live: bool, rows: int) -> dict[str, Any]:
    """One series: whole windows, and live if it is one of those of live_quality."""
    every, part, kind = slice(None), slice_of(series.labels, rows), kind_of(series)
    ways: dict[str, tuple[slice, ScoreOptions, tuple[float, ...]]] = {"whole": (every, ScoreOptions(), WEIGHTS[kind])}
    for delay in DELAYS if live else ():
        ways[f"delay {delay}"] = part, ScoreOptions(align="last", delay=delay), LIVE_WEIGHTS[kind]
    found = {
        way: {
            str(weight): worth(score(series, of, model, partial(weighted, weight), options), series.labels[of])
            for weight in weights
        }
        for way, (of, options, weights) in ways.items()
    }
    return {"group": series.group, "name": series.name, "worth": found}


def summarise(measured: list[dict[str, Any]]) -> dict[str, Any]:
    """Means over the series of each group, by way and weight, and what leaving one group out gives."""
    tables: dict[str, Any] = {}
    for way in ("whole", *(f"delay {delay}" for delay in DELAYS)):
        for metric in METRICS:
            of_way = [one for one in measured if way in one["worth"]]
            names = list(of_way[0]["worth"][way]) if of_way else []
            tables.setdefault(way, {})[metric] = {
                weight: {group: _mean(of_way, group, way, weight, metric) for group in _groups(of_way)}
                for weight in names
            }
    table = tables["whole"]["vus_pr"]
    left_out = {}
    for group in _groups(measured) if len(_groups(measured)) > 1 else ():
        others = {weight: np.mean([v for other, v in of.items() if other != group]) for weight, of in table.items()}
        best = max(others, key=lambda weight: others[weight])
        left_out[group] = {"weight": best, "vus_pr": table[best][group], "without": table["0"][group]}
    return {"benchmark": "patterns", "tables": tables, "left_out": left_out, "per_series": measured}


def _groups(measured: list[dict[str, Any]]) -> list[str]:
    return list(dict.fromkeys(one["group"] for one in measured))


def _mean(measured: list[dict[str, Any]], group: str, way: str, weight: str, metric: str) -> float:
    values = [one["worth"][way][weight][metric] for one in measured if one["group"] == group]
    return round(float(np.mean(values)), 2)


def markdown(summary: dict[str, Any]) -> str:
    """The tables of docs/method.md."""
    parts = []
    for way, title in (("whole", "weight"), *((f"delay {delay}", f"live, delay {delay}: weight") for delay in DELAYS)):
        of_way = summary["tables"][way]
        groups = list(next(iter(of_way["vus_pr"].values())))
        lines = [f"| {title} | {' | '.join(groups)} | VUS-PR | AUC-PR |", "| --- " * (len(groups) + 3) + "|"]
        for weight, of in of_way["vus_pr"].items():
            cells = [*of.values(), np.mean([*of.values()]), np.mean([*of_way["auc_pr"][weight].values()])]
            name = "0: none" if weight == "0" else weight
            lines.append(f"| {name} | {' | '.join(f'{value:.1f}' for value in cells)} |")
        chosen = summary["left_out"]
        if way == "whole" and chosen:
            cells = [of["vus_pr"] for of in chosen.values()]
            weights = ", ".join(of["weight"] for of in chosen.values())
            shown = " | ".join(f"{value:.1f}" for value in [*cells, np.mean(cells)])
            lines.append(f"| chosen without the group: {weights} | {shown} | |")
        parts.append("\n".join(lines))
    return "\n\n".join(parts)


def main() -> None:
    """Measure, and sum up what is there."""
    args = arguments(__doc__, kinds=tuple(WEIGHTS))
    measured = []
    for series, folder, live in trained(args):
        if kind_of(series) == args.kind:
            once = partial(measure, series, folder / "model.onnx", live=live, rows=args.rows)
            measured.append(kept(folder / f"patterns-{args.rows}.json", once))
            whole = {weight: of["vus_pr"] for weight, of in measured[-1]["worth"]["whole"].items()}
            print(series.group, series.name, whole, flush=True)
    if not measured:
        features = "one feature" if args.kind == "one" else "several features"
        raise SystemExit(f"{args.work}: has no model of {features}; run benchmarks.quality first")
    summary = summarise(measured)
    conclude(args, summary, markdown(summary), "left_out")


if __name__ == "__main__":
    main()
