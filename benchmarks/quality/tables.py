"""The tables of docs/method.md, from results/quality.json."""

from collections.abc import Iterator
from typing import Any

from benchmarks.quality.baselines import PATTERN_BASELINES, WITHOUT_NETWORK
from benchmarks.quality.summary import DEFAULT

LABELS = {
    DEFAULT: "**`fusion`: the default**",
    WITHOUT_NETWORK: "the same fusion without a network",
    "network: shape": "shape: `centred --normalise-errors --smooth 50`",
    "network: level": "fixed level: `reconstruction --normalise-errors --smooth 50`",
    "AR, next row": "next row: linear prediction from 20 rows",
    "AR, 5 rows ahead": "rows ahead: the same, 5 rows ahead",
    "activity of AR, next row": "activity of the next-row error",
    "activity of AR, 5 rows ahead": "activity of the rows-ahead error",
    PATTERN_BASELINES[0]: "pattern: nearest of the normal stretches, without their level",
    PATTERN_BASELINES[1]: "pattern, without level and height",
    "moving average 11": "residual of a moving average of 11 rows",
    "moving average 51": "residual of a moving average of 51 rows",
    "moving average 101": "residual of a moving average of 101 rows",
    "seasonal profile": "residual of a profile by time of day",
    "PCA": "PCA",
    "IsolationForest": "IsolationForest",
    "paper's score": "the paper's score, of the default's network",
    "random": "random",
}
FEW = (DEFAULT, WITHOUT_NETWORK, "network: shape", "AR, next row", "moving average 51", "PCA", "random")
"""Lines of the tables of other metrics."""


def markdown(summary: dict[str, Any]) -> Iterator[str]:
    """VUS-PR, seeds, the other metrics, regret."""
    groups = list(summary["series"])
    yield _table("VUS-PR, mean over the series, %", groups, _lines(summary, "vus_pr", LABELS))
    yield _table("VUS-PR of the default by seed", groups, _seeds(summary, groups))
    yield _table("AUC-PR, %", groups, _lines(summary, "auc_pr", FEW))
    yield _table("event recall at one false alarm a day, %", groups, _lines(summary, "event_recall", FEW))
    regret = summary["regret"]
    best = " | ".join(regret["groups"][group]["best"] for group in groups)
    points = [*(regret["groups"][group]["regret"] for group in groups), regret["mean"], regret["worst"]]
    yield "\n".join(
        [
            f"| | {' | '.join(groups)} | mean | worst |",
            "| --- " * (len(groups) + 3) + "|",
            f"| best single score, chosen with labels | {best} | | |",
            f"| regret | {' | '.join(f'{value:.1f}' for value in points)} |",
        ]
    )


def few_rows(summary: dict[str, Any]) -> str:
    """VUS-PR of a run with `--learn`."""
    names = ["network: level", "moving average 11", *FEW]
    return _table(
        "VUS-PR, %", list(summary["series"]), _lines(summary, "vus_pr", sorted(names, key=list(LABELS).index))
    )


def _lines(summary: dict[str, Any], metric: str, names: Any) -> Iterator[tuple[str, dict[str, float]]]:
    for name in names:
        yield LABELS[name], summary["means"][name][metric]


def _seeds(summary: dict[str, Any], groups: list[str]) -> Iterator[tuple[str, dict[str, float]]]:
    for seed in summary["seeds"]:
        of_seed = {group: summary["spread"].get(group, {}).get(str(seed)) for group in groups}
        yield str(seed), {group: value for group, value in of_seed.items() if value is not None}


def _table(title: str, groups: list[str], lines: Iterator[tuple[str, dict[str, float]]]) -> str:
    rows = [f"| {title} | {' | '.join(groups)} | mean |", "| --- " * (len(groups) + 2) + "|"]
    for label, found in lines:
        cells = [f"{found[column]:.1f}" if column in found else "-" for column in (*groups, "mean")]
        rows.append(f"| {label} | {' | '.join(cells)} |")
    return "\n".join(rows)
