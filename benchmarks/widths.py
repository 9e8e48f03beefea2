"""What other widths of the smoothing would be worth: scores of the same networks, in whole windows and live.

    python -m benchmarks.widths --data DATA --work WORK --out benchmarks/results/widths.json

Takes the models that `python -m benchmarks.quality` left in `--work`. Widths are recorded with a model and change
nothing but the last step of its scores, so no network is trained again. Live rows are those of
`python -m benchmarks.live_quality`, without delay and ten rows late. A run that was stopped goes on.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from at_infer import ScoreOptions, Scorer, open_engine
from at_infer.models.criterion import view_statistics
from at_infer.models.statistics import ViewStatistics
from benchmarks.live_quality import arguments, conclude, kept, slice_of, trained
from benchmarks.quality.series import Series
from benchmarks.quality.worth import worth_of_ranking

Floats = NDArray[np.float32]

BEFORE = (25, 50)
"""Those of earlier versions; differences are to these."""
OF_ONE = [BEFORE, (25, 50, 100), (50, 100), (25, 50, 100, 150), (10, 50, 100, 150), (10, 25, 50, 100, 150)]
OF_SEVERAL = [BEFORE, (25, 50, 100), (10, 50), (10, 25, 50), (5, 10, 25, 50), (5, 25, 50)]
LIVE = [BEFORE, (5, 10, 25, 50), (10, 25, 50, 100, 150), (10, 20, 50), (50, 100), (100, 200)]
"""A live row is averaged with those before it, over half of each width, and what the delay allows behind it."""
DELAYS = (0, 10)
METRICS = ("vus_pr", "auc_pr")
KINDS = ("one feature", "several features")


Change = Callable[[ViewStatistics], ViewStatistics]


def score(series: Series, rows: slice, model: Path, change: Change, options: ScoreOptions) -> Floats:
    """By the model with other statistics of its views."""
    with open_engine(model, threads=1) as engine:
        known = engine.metadata
        assert known is not None
        assert known.normal is not None
        engine.metadata = replace(known, normal=replace(known.normal, views=change(view_statistics(known))))
        with Scorer(engine, replace(options, explain="none", threshold=float(np.finfo(np.float32).max))) as scorer:
            return scorer.score(series.test[rows]).score


def widened(widths: tuple[int, ...], known: ViewStatistics) -> ViewStatistics:
    """The same model with these widths."""
    return replace(known, widths=list(widths))


def worth(scores: Floats, labels: NDArray[np.bool_]) -> dict[str, float]:
    """Of rows that have a score."""
    scored = np.isfinite(scores)
    return worth_of_ranking(scores[scored], labels[scored])


def measure(series: Series, model: Path, *, live: bool, rows: int) -> dict[str, Any]:
    """One series: whole windows, and live if it is one of those of live_quality."""
    features = series.rows()[1].shape[1]
    every = slice(None)
    found = {
        "whole": {
            named(widths): worth(score(series, every, model, partial(widened, widths), ScoreOptions()), series.labels)
            for widths in (OF_ONE if features == 1 else OF_SEVERAL)
        }
    }
    part = slice_of(series.labels, rows)
    for delay in DELAYS if live else ():
        late = ScoreOptions(align="last", delay=delay)
        found[f"delay {delay}"] = {
            named(widths): worth(score(series, part, model, partial(widened, widths), late), series.labels[part])
            for widths in LIVE
        }
    return {"group": series.group, "name": series.name, "features": features, "worth": found}


def named(widths: tuple[int, ...]) -> str:
    """As the tables have them."""
    return ", ".join(map(str, widths))


def summarise(measured: list[dict[str, Any]]) -> dict[str, Any]:
    """Differences to `BEFORE`: mean of each group, and mean over the series with its standard error."""
    tables: dict[str, Any] = {}
    for way in ("whole", *(f"delay {delay}" for delay in DELAYS)):
        for several, kind in enumerate(KINDS):
            known = [one for one in measured if (one["features"] > 1) == several and way in one["worth"]]
            if known:
                names = list(known[0]["worth"][way])
                tables[f"{kind}, {way}"] = {name: _differences(known, way, name) for name in names}
    return {"benchmark": "widths", "compared_with": named(BEFORE), "tables": tables, "per_series": measured}


def _differences(known: list[dict[str, Any]], way: str, name: str) -> dict[str, Any]:
    found: dict[str, Any] = {"series": len(known)}
    for metric in METRICS:
        by_group: dict[str, list[float]] = {}
        for one in known:
            of = one["worth"][way]
            by_group.setdefault(one["group"], []).append(of[name][metric] - of[named(BEFORE)][metric])
        every = np.concatenate([np.asarray(of_group) for of_group in by_group.values()])
        error = float(every.std(ddof=1) / np.sqrt(len(every))) if len(every) > 1 else 0.0
        found[metric] = {
            "groups": {group: round(float(np.mean(of_group)), 2) for group, of_group in by_group.items()},
            "mean": round(float(every.mean()), 2),
            "error": round(error, 2),
        }
    return found


def markdown(summary: dict[str, Any]) -> str:
    """The tables of docs/method.md: whole windows by group, live rows as means over the series."""
    parts = []
    for kind in KINDS:
        table = summary["tables"][f"{kind}, whole"]
        groups = list(next(iter(table.values()))["vus_pr"]["groups"])
        lines = [f"| {kind} | {' | '.join(groups)} | VUS-PR | AUC-PR |", "| --- " * (len(groups) + 3) + "|"]
        for name, of in table.items():
            cells = [f"{value:+.1f}" for value in of["vus_pr"]["groups"].values()]
            lines.append(_row(name, *cells, *(_mean(of[metric]) for metric in METRICS)))
        parts.append("\n".join(lines))
    live = [f"{kind}, delay {delay}" for kind in KINDS for delay in DELAYS]
    lines = [f"| VUS-PR live | {' | '.join(live)} |", "| --- " * (len(live) + 1) + "|"]
    for name in summary["tables"][live[0]]:
        lines.append(_row(name, *(_mean(summary["tables"][title][name]["vus_pr"]) for title in live)))
    return "\n\n".join([*parts, "\n".join(lines)])


def _row(name: str, *cells: str) -> str:
    shown = ["0" for _ in cells] if name == named(BEFORE) else cells
    return f"| {name} | {' | '.join(shown)} |"


def _mean(of: dict[str, Any]) -> str:
    return f"{of['mean']:+.1f} +- {of['error']:.1f}"


def main() -> None:
    """Measure, and sum up what is there."""
    args = arguments(__doc__)
    measured = []
    for series, folder, live in trained(args):
        once = partial(measure, series, folder / "model.onnx", live=live, rows=args.rows)
        measured.append(kept(folder / f"widths-{args.rows}.json", once))
        now = {way: of[named(BEFORE)] for way, of in measured[-1]["worth"].items()}
        print(series.group, series.name, now, flush=True)
    summary = summarise(measured)
    complete = len(summary["tables"]) == len(KINDS) * (1 + len(DELAYS))
    conclude(args, summary, markdown(summary) if complete else "some tables have no series yet", "tables")


if __name__ == "__main__":
    main()
