"""What scores of test rows are worth: F1 with point adjustment as in the paper, and figures that chance cannot win."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from at_infer.evaluation.evaluate import ScoresAndAlarms, figures
from at_infer.evaluation.metrics.alarms import by_row, point_adjusted
from at_infer.evaluation.metrics.baselines import baseline, nth
from at_infer.evaluation.metrics.ranking import rank
from at_infer.evaluation.metrics.runs import runs
from at_infer.evaluation.metrics.vus import THRESHOLDS, volumes

Floats = NDArray[np.float32]
Figures = dict[str, float]

KEPT = ("pa_precision", "pa_recall", "pa_f1", "f1", "vus_pr")
CHANCE_RUNS = 10


class Truth(NamedTuple):
    """Labels of the test rows, and how many of them each channel has."""

    labels: NDArray[np.bool_]
    channel_rows: list[int]

    @classmethod
    def read(cls, folder: Path) -> "Truth":
        """Of a data set."""
        frame = pl.read_parquet(folder / "test.parquet", columns=["channel", "label"])
        lengths = frame["channel"].rle_id().value_counts(sort=False).sort("channel")["count"].to_list()
        return cls(frame["label"].to_numpy() > 0, lengths)

    def describe(self) -> dict[str, int]:
        """Counts for the report."""
        return {
            "rows": len(self.labels),
            "anomalous_rows": int(self.labels.sum()),
            "segments": len(runs(self.labels)),
            "channels": len(self.channel_rows),
        }


def measure(scores: Floats, alarms: NDArray[np.bool_], truth: Truth) -> Figures:
    """In percent: with and without point adjustment, as one series; VUS-PR also as the mean over the channels."""
    found = figures(ScoresAndAlarms(scores, alarms), truth.labels, None)
    kept = {name: 100 * (found[name] or 0.0) for name in KEPT}
    ends = np.cumsum(truth.channel_rows)
    of_channels = [
        vus_pr(scores[end - rows : end], labels)
        for end, rows in zip(ends, truth.channel_rows, strict=True)
        if (labels := truth.labels[end - rows : end]).any() and not labels.all()
    ]
    return kept | {"vus_pr_channels": float(np.mean(of_channels)), "flagged": 100 * float(alarms.mean())}


def vus_pr(scores: Floats, labels: NDArray[np.bool_]) -> float:
    """In percent."""
    return 100 * volumes(scores, labels, runs(labels), rank(scores, labels, THRESHOLDS).samples).pr


def chance(truth: Truth, ratio: float) -> dict[str, Figures]:
    """Scores that never saw the data, with alarms on a share `ratio`: means over seeds, and over first rows."""
    random, every = [], []
    for i in range(CHANCE_RUNS):
        one = baseline("random", len(truth.labels), ratio, i)
        random.append(measure(one.scores, one.scores > np.float32(one.threshold), truth))
        first = i * nth(ratio) // CHANCE_RUNS
        ticks = np.roll(baseline("every_nth", len(truth.labels), ratio, 0).scores, first)
        every.append(measure(ticks, ticks > 0.5, truth))
    return {"random": mean(random), "every_nth": mean(every)}


def chance_spread(truth: Truth, ratio: float) -> list[dict[str, Any]]:
    """F1 of the same two, over ten seeds and over the first rows, with their spread; no metric that takes long."""
    rows, known = len(truth.labels), runs(truth.labels)
    ticks = baseline("every_nth", rows, ratio, 0).scores
    found: dict[str, list[Figures]] = {"random": [], "every_nth": []}
    for i in range(CHANCE_RUNS):
        one = baseline("random", rows, ratio, i)
        alarms = {"random": one.scores > np.float32(one.threshold)}
        alarms["every_nth"] = np.roll(ticks, i * nth(ratio) // CHANCE_RUNS) > 0.5
        for name, flagged in alarms.items():
            of = point_adjusted(known, runs(flagged)) | by_row(known, runs(flagged))
            found[name].append({key: 100 * (of[key] or 0.0) for key in ("pa_f1", "f1")})
    return [{"variant": name, "figures": mean(of), "spread": spread(of)} for name, of in found.items()]


def mean(of: Sequence[Figures]) -> Figures:
    """Figure by figure, rounded as they are kept."""
    return {name: round(float(np.mean([one[name] for one in of])), 2) for name in of[0]}


def spread(of: Sequence[Figures]) -> Figures | None:
    """Standard deviation over several seeds."""
    if len(of) < 2:
        return None
    return {name: round(float(np.std([one[name] for one in of], ddof=1)), 2) for name in of[0]}


def contrast(weights: Floats, labels: NDArray[np.bool_]) -> Figures:
    """Mean adjacent-association weight of abnormal and of normal points in percent, and their ratio."""
    abnormal, normal = (100 * float(weights[of].mean(dtype=np.float64)) for of in (labels, ~labels))
    return {"abnormal": abnormal, "normal": normal, "contrast": abnormal / normal}


def merged(old: dict[str, Any], dataset: str, entry: dict[str, Any]) -> dict[str, Any]:
    """Results of a table with those of one more data set."""
    return old | {"datasets": old.get("datasets", {}) | {dataset: entry}}
