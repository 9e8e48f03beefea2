"""What a score is worth live: each row as the last of its window, some rows late, against whole windows.

    python -m benchmarks.live_quality --data DATA --work WORK --out benchmarks/results/live_quality.json

Takes the models that `python -m benchmarks.quality` left in `--work`. Live scoring costs a forward pass a row, so of
each series only the 6000 rows with the most anomalous ones among them are scored, live and in whole windows; rows
before the first full window have no live score and count in neither.
"""

import argparse
import json
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from at_infer.output import atomic_path
from benchmarks.quality.commands import folder_of, score
from benchmarks.quality.series import GROUPS, Series, load
from benchmarks.quality.worth import worth

DELAYS = (0, 10, 25)
ROWS = 6000
SERIES = 8
"""At most so many of a group."""


def slice_of(labels: NDArray[np.bool_], rows: int) -> slice:
    """So many consecutive rows with the most anomalous ones among them, in their middle if there is a choice."""
    if len(labels) <= rows:
        return slice(0, len(labels))
    counts = np.concatenate([[0], np.cumsum(labels)])
    inside = counts[rows:] - counts[:-rows]
    best = np.flatnonzero(inside == inside[inside < rows].max())
    first = int(best[len(best) // 2])
    return slice(first, first + rows)


def measure(series: Series, model: Path, rows: int) -> dict[str, Any]:
    """One series, live at each delay and in whole windows."""
    part = slice_of(series.labels, rows)
    test, labels = series.test[part], series.labels[part]
    scores = {"whole": score(test, model)}
    for delay in DELAYS:
        scores[f"delay {delay}"] = score(test, model, "--align", "last", "--delay", delay)
    scored = np.all([np.isfinite(of_rows) for of_rows in scores.values()], axis=0)
    rows_a_day = GROUPS[series.group].rows_a_day
    found = {name: worth(of_rows[scored], labels[scored], rows_a_day) for name, of_rows in scores.items()}
    return {"group": series.group, "name": series.name, "rows": int(scored.sum()), "worth": found}


def summarise(measured: list[dict[str, Any]], rows: int) -> dict[str, Any]:
    """Means over the series of each group, and live divided by whole."""
    groups: dict[str, dict[str, Any]] = {}
    for group in GROUPS:
        of_group = [one["worth"] for one in measured if one["group"] == group]
        if of_group:
            means = {name: float(np.mean([one[name]["vus_pr"] for one in of_group])) for name in of_group[0]}
            ratios = {name: round(mean / means["whole"], 3) for name, mean in means.items() if name != "whole"}
            groups[group] = {
                "series": len(of_group),
                "vus_pr": {name: round(mean, 2) for name, mean in means.items()},
                "live_to_whole": ratios,
            }
    return {"benchmark": "live_quality", "rows_at_most": rows, "groups": groups, "per_series": measured}


def arguments(about: str | None, kinds: tuple[str, ...] = ()) -> argparse.Namespace:
    """Options of this benchmark, and of others on the same rows; those may ask for one of several kinds of series."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    if kinds:
        parser.add_argument("kind", nargs="?", choices=kinds, default=kinds[0], help="features of a series")
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--work", type=Path, required=True, help="of benchmarks.quality")
    parser.add_argument("--out", type=Path, help="where the summary goes")
    parser.add_argument("--groups", default=",".join(GROUPS))
    parser.add_argument("--rows", type=int, default=ROWS, help="of a series that is scored live, at most")
    parser.add_argument("--series", type=int, default=SERIES, help="of a group that are scored live, at most")
    return parser.parse_args()


def trained(args: argparse.Namespace) -> Iterator[tuple[Series, Path, bool]]:
    """Series that have a model, the folder of it, and whether they are scored live."""
    for group in args.groups.split(","):
        known = [
            (series, folder)
            for series in load(args.data, group)
            if ((folder := folder_of(args.work, series, 0)) / "figures.json").exists()
        ]
        every = -(-len(known) // args.series)
        for i, (series, folder) in enumerate(known):
            yield series, folder, i % every == 0


def kept(path: Path, measure: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """What was measured, now or in an earlier run."""
    if not path.exists():
        found = measure()
        with atomic_path(path) as temporary:
            temporary.write_text(json.dumps(found))
    known: dict[str, Any] = json.loads(path.read_text())
    return known


def conclude(args: argparse.Namespace, summary: dict[str, Any], table: str, figures: str) -> None:
    """Print the table, keep the summary where it was asked for, and end in one JSON line with some figures."""
    print(table)
    if args.out is not None:
        args.out.write_text(json.dumps(summary, indent=1) + "\n")
    print(json.dumps({name: summary[name] for name in ("benchmark", figures)}))


def main() -> None:
    """Measure, and sum up what is there."""
    args = arguments(__doc__)
    measured = []
    for series, folder, live in trained(args):
        if live:
            model = folder / "model.onnx"
            measured.append(kept(folder / f"live-{args.rows}.json", partial(measure, series, model, args.rows)))
            print(series.group, series.name, measured[-1]["rows"], measured[-1]["worth"], flush=True)
    summary = summarise(measured, args.rows)
    lines = []
    for group, figures in summary["groups"].items():
        cells = "".join(f"  {name} {value:.1f}" for name, value in figures["vus_pr"].items())
        ratios = "".join(f"  {ratio:.2f}" for ratio in figures["live_to_whole"].values())
        lines.append(f"{group:8} {figures['series']:3} series{cells}  live to whole{ratios}")
    conclude(args, summary, "\n".join(lines), "groups")


if __name__ == "__main__":
    main()
