"""What the paper shows as curves: ROC over r, losses over epochs, sigma by kind of point, intervals of scores."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import torch
from numpy.typing import NDArray

from at_infer.evaluation.evaluate import ROC_RATIOS
from at_infer.evaluation.metrics.alarms import rates
from at_infer.evaluation.metrics.baselines import baseline
from at_infer.evaluation.metrics.runs import runs
from at_infer.scoring.windows import window_starts
from at_infer.thresholds.ratio import ratio_threshold
from benchmarks.reproduce import paper
from benchmarks.reproduce.measures import Floats, Truth
from benchmarks.reproduce.outputs import BATCH, scored
from benchmarks.reproduce.sources import KEYS, prepare
from benchmarks.reproduce.tables import STRATEGIES, TABLES, size_in_words, training_of
from benchmarks.reproduce.trainings import split_of, trained
from training.model import AnomalyTransformer
from training.validation_rows import one_per_row

DECADES = tuple(range(-8, 3))
"""Edges of the intervals of scores, powers of ten."""
AREAS = ("area", "pa_area")
LEVELS = (0.05, 0.25, 0.5, 0.75, 0.95)
"""Quantiles of sigma."""


def run_curves(dataset: str, size: str, seeds: Sequence[int], data: Path, work: Path) -> dict[str, Any]:
    """Of the trainings of table `leaking` that do not leak; sigma and intervals are those of the first seed."""
    folder = prepare(dataset, data, work)
    truth = Truth.read(folder)
    training = training_of(TABLES["leaking"].variants[0], dataset, size, seeds[0])
    of_seeds = [scored(replace(training, seed=seed), folder, work) for seed in seeds]
    checkpoints = [trained(replace(training, seed=seed), folder, work) for seed in seeds]
    roc: dict[str, Any] = {}
    for mode in STRATEGIES:
        parts = [[part.scores(mode, training) for part in (one.validation, one.test)] for one in of_seeds]
        roc[mode] = mean_roc([roc_points(validation, test, truth.labels) for validation, test in parts])
    roc["random"] = mean_roc([random_points(truth.labels, seed) for seed in range(10)])
    first = of_seeds[0].validation
    return {
        "size": size_in_words(size),
        "seeds": list(seeds),
        "split": split_of(training, folder, work),
        "test": truth.describe(),
        "rows": [{"variant": name, "figures": {key: found[key] for key in AREAS}} for name, found in roc.items()],
        "roc": roc,
        "convergence": [checkpoint.train["evaluations"] for checkpoint in checkpoints],
        "sigma": compare(sigma_of(checkpoints[0].network(), checkpoints[0].scaler, folder), truth.labels),
        "intervals": {mode: count(first.scores(mode, training), dataset) for mode in STRATEGIES},
    }


def roc_points(validation: Floats, test: Floats, labels: NDArray[np.bool_]) -> list[dict[str, float]]:
    """At the paper's r, thresholds from validation scores."""
    thresholds = [ratio_threshold(validation, ratio) for ratio in ROC_RATIOS]
    return [_point(test > np.float32(threshold), labels) for threshold in thresholds]


def random_points(labels: NDArray[np.bool_], seed: int) -> list[dict[str, float]]:
    """Of a score that never read the data."""
    found = [baseline("random", len(labels), ratio, seed) for ratio in ROC_RATIOS]
    return [_point(one.scores > np.float32(one.threshold), labels) for one in found]


def _point(alarms: NDArray[np.bool_], labels: NDArray[np.bool_]) -> dict[str, float]:
    found = rates(runs(labels), runs(alarms), len(labels))
    return {name: float(value or 0) for name, value in found.items()}


def mean_roc(of_seeds: Sequence[list[dict[str, float]]]) -> dict[str, Any]:
    """Means of the points in percent, and the areas below the lines through them, (0, 0) and (1, 1)."""
    mean = {name: np.mean([[point[name] for point in one] for one in of_seeds], axis=0) for name in of_seeds[0][0]}
    found: dict[str, Any] = {name: [round(100 * float(v), 3) for v in values] for name, values in mean.items()}
    for area, name in zip(AREAS, ("tpr", "pa_tpr"), strict=True):
        found[area] = round(100 * area_below(mean["fpr"], mean[name]), 2)
    return found | {"ratios": list(ROC_RATIOS)}


def area_below(fpr: NDArray[np.floating[Any]], tpr: NDArray[np.floating[Any]]) -> float:
    """Of lines from (0, 0) through the points to (1, 1)."""
    order = np.argsort(fpr, kind="stable")
    x, y = (np.concatenate([[0.0], values[order], [1.0]]) for values in (fpr, tpr))
    return float(np.trapezoid(y, x))


@torch.inference_mode()
def sigma_of(network: AnomalyTransformer, scaler: Any, folder: Path) -> Floats:
    """(rows, L): the scale of every test row, mean over the heads."""
    rows = pl.read_parquet(folder / "test.parquet").drop(*KEYS, "label").to_numpy().astype(np.float32)
    mean, scale = (np.asarray(v, np.float32) for v in (scaler.mean, scaler.scale))
    window = network.config.window
    starts = window_starts(len(rows), window, window, cover_tail=True)
    values, steps = torch.from_numpy((rows - mean) / scale), torch.arange(window)
    found = []
    for batch in torch.from_numpy(starts).split(BATCH):
        _, associations = network(values[batch[:, None] + steps])
        found.append(torch.stack([a.sigma.mean(1) for a in associations], dim=-1))
    layers = torch.cat(found).numpy()  # (B,N,L)
    return np.stack([one_per_row(layers[..., i], starts) for i in range(layers.shape[-1])], axis=1)


def compare(sigma: Floats, labels: NDArray[np.bool_]) -> dict[str, Any]:
    """Per layer, quantiles of sigma of abnormal and of normal points, and how often the abnormal one is smaller."""
    found = []
    for of_layer in sigma.T:
        abnormal, normal = of_layer[labels], np.sort(of_layer[~labels])
        below = (np.searchsorted(normal, abnormal, "left") + np.searchsorted(normal, abnormal, "right")) / 2
        found.append(
            {
                "abnormal": [round(float(v), 4) for v in np.quantile(abnormal, LEVELS)],
                "normal": [round(float(v), 4) for v in np.quantile(normal, LEVELS)],
                "abnormal_smaller": round(1 - float(below.mean()) / len(normal), 4),
            }
        )
    return {"levels": list(LEVELS), "layers": found}


def count(scores: Floats, dataset: str) -> dict[str, Any]:
    """Validation scores by decade, and by the paper's intervals of this data set."""
    with np.errstate(divide="ignore"):
        exponents = np.log10(scores.astype(np.float64))
    edges = [-np.inf, *DECADES, np.inf]
    found: dict[str, Any] = {"edges": list(DECADES), "counts": np.histogram(exponents, edges)[0].tolist()}
    if dataset in paper.DELTA:
        bounds = np.array([paper.DELTA[dataset] / 10, paper.DELTA[dataset]], np.float32)
        kinds = np.searchsorted(bounds, scores, side="left")
        found["intervals"] = np.bincount(kinds, minlength=3).tolist()
    return found
