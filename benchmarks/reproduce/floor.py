"""What the floor inside the logarithms of AssDis does to mode `paper`: untrained, trained with it and without it."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import torch
from numpy.typing import NDArray

from at_infer.config import HeadRule, ScoreMode
from at_infer.scoring.windows import window_starts
from at_infer.thresholds.ratio import ratio_threshold
from benchmarks.reproduce import paper
from benchmarks.reproduce.measures import Floats, Truth, chance, mean, measure, spread
from benchmarks.reproduce.outputs import Outputs, window_outputs
from benchmarks.reproduce.sources import KEYS, prepare
from benchmarks.reproduce.tables import TABLES, training_of
from benchmarks.reproduce.trainings import Training, features, network_config, split_of, trained
from training.model import AnomalyTransformer

NETWORKS: dict[str, HeadRule | None] = {
    "untrained": None,
    "trained": "paper",
    "trained with exact logarithms": "exact",
}
"""And the rule of their trainings."""
SCORES: tuple[tuple[str, ScoreMode, HeadRule], ...] = (
    ("published", "published", "paper"),
    ("paper, floor of 1e-8", "paper", "paper"),
    ("paper, exact logarithms", "paper", "exact"),
)


def run_floor(dataset: str, training: Training, seeds: Sequence[int], data: Path, work: Path) -> dict[str, Any]:
    """The networks of every seed, by either rule; the threshold comes from validation scores."""
    folder = prepare(dataset, data, work)
    truth, ratio = Truth.read(folder), paper.ratio_of(dataset)
    rows = []
    for kind, trained_by in NETWORKS.items():
        of_seeds = [_outputs(trained_by, replace(training, seed=seed), folder, work) for seed in seeds]
        agreement = np.mean(
            [rank_correlation(*(one[rule][1].discrepancy[rule].mean(0) for rule in one)) for one in of_seeds]
        )
        for label, mode, rule in SCORES:
            by = replace(training, head_rule=rule)
            found = []
            for one in of_seeds:
                validation, test = (part.scores(mode, by) for part in one[rule])
                found.append(measure(test, test > np.float32(ratio_threshold(validation, ratio)), truth))
            used = [one[rule][1].discrepancy["published" if mode == "published" else rule].mean(0) for one in of_seeds]
            rows.append(
                {"variant": kind, "score": label, "figures": mean(found), "spread": spread(found)}
                | {"assdis": [round(float(np.quantile(used, q)), 2) for q in (0, 0.5, 1)]}
                | {"rank_correlation": round(float(agreement), 3)}
            )
    return {
        "width": training.width,
        "layers": training.layers,
        "epochs": training.epochs,
        "seeds": list(seeds),
        "split": split_of(training, folder, work),
        "test": truth.describe(),
        "ratio": ratio,
        "chance": chance(truth, ratio),
        "rows": rows,
    }


def training_at(dataset: str, size: str) -> Training:
    """The main results' training."""
    return training_of(TABLES["main"].variants[0], dataset, size, 0)


def rank_correlation(a: Floats, b: Floats) -> float:
    """Spearman's, of values that are hardly ever equal."""
    first, second = (np.argsort(np.argsort(x.ravel())) for x in (a, b))
    return float(np.corrcoef(first, second)[0, 1])


def _outputs(
    trained_by: HeadRule | None, training: Training, folder: Path, work: Path
) -> dict[HeadRule, tuple[Outputs, Outputs]]:
    """Of validation and test rows, by either rule; None is not trained."""
    data = features(folder, training.window)
    if trained_by is not None:
        network = trained(replace(training, head_rule=trained_by), folder, work).network()
    else:
        torch.manual_seed(training.seed)
        network = AnomalyTransformer(network_config(training, len(data.columns))).eval()
    rows = pl.read_parquet(folder / "test.parquet").drop(*KEYS, "label").to_numpy().astype(np.float32)
    scaler_mean, scale = (np.asarray(v, np.float32) for v in (data.scaler.mean, data.scaler.scale))
    starts: NDArray[np.int64] = window_starts(len(rows), training.window, training.window, cover_tail=True)
    return {
        rule: (
            window_outputs(network, data.validation.values, data.validation.starts, by),
            window_outputs(network, (rows - scaler_mean) / scale, starts, by),
        )
        for rule in ("paper", "exact")
        for by in [replace(training, head_rule=rule)]
    }
