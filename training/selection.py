"""Choosing a score without labels: which one finds anomalies that were put into a copy of the validation part."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from at_infer.config import SCORE_MODES, DiscrepancyConfig, Normal, ScoreConfig
from at_infer.datasets import inject
from at_infer.errors import ConfigError
from at_infer.evaluation.metrics.ranking import rank
from at_infer.scoring.windows import window_starts
from training.model import AnomalyTransformer
from training.validation import one_per_row, smoothed, window_parts, window_scores

SMOOTHINGS = (1, 5, 10, 25)
SHARE = 0.1
"""Of the rows become anomalous, the same number for each of the five families of NeurIPS-TS."""
LEAST_ROWS = 50
MOST_ROWS = 100_000
"""The choice does not get better from more."""
SANE = 1e6  # in standard deviations; anomalies are put into values of any other size as if they were this large


@dataclass(frozen=True, slots=True, kw_only=True)
class AutoScore:
    """A score to be chosen; what is given is not up for choice."""

    temperature: float = ScoreConfig().temperature
    smooth: int | None = None
    normalise_errors: bool | None = None

    def candidates(self) -> list[ScoreConfig]:
        """Every mode with every smoothing, errors as they are and normalised where the mode has that choice."""
        smoothings = SMOOTHINGS if self.smooth is None else (self.smooth,)
        normalise = (False, True) if self.normalise_errors is None else (self.normalise_errors,)
        made = [
            ScoreConfig(mode=mode, temperature=self.temperature, smooth=smooth, normalise_errors=normalised)
            for mode in SCORE_MODES
            for normalised in normalise
            for smooth in smoothings
        ]
        return [c for c in made if c.normalise_errors == c.error_kind.normalised or len(normalise) == 1]

    def chosen(self, rated: Sequence[dict[str, Any]]) -> ScoreConfig:
        """The best of what `rate` found."""
        best = {name: value for name, value in rated[0].items() if name != "auc_pr"}
        return ScoreConfig(temperature=self.temperature, **best)


def rate(
    candidates: Sequence[ScoreConfig],
    network: AnomalyTransformer,
    series: Sequence[NDArray[np.float32]],
    *,
    discrepancy: DiscrepancyConfig,
    normal: Normal,
    seed: int,
    device: torch.device | str = "cpu",
    batch_size: int = 32,
) -> list[dict[str, Any]]:
    """AUC-PR of every candidate, the best first; of equals, the one that comes first among the candidates.

    `series` are scaled rows (rows,F) of the validation part, each at least a window long.
    """
    window = network.config.window
    lengths: list[int] = []
    starts: list[NDArray[np.int64]] = []
    for rows in series:
        length = min(len(rows), MOST_ROWS - sum(lengths))
        if length < window:
            break
        starts.append(window_starts(length, window, window, cover_tail=True) + sum(lengths))
        lengths.append(length)
    total, places = sum(lengths), np.concatenate(starts)
    if total < LEAST_ROWS:
        raise ConfigError(
            f"score mode: auto needs {LEAST_ROWS} validation rows, there are {total}; give more, or name a mode"
        )
    normal_rows = np.concatenate([rows[:length] for rows, length in zip(series, lengths, strict=False)])
    mixed = inject(np.clip(normal_rows, -SANE, SANE), share=SHARE, rng=np.random.default_rng(seed))
    parts = window_parts(
        network,
        torch.from_numpy(mixed.values).to(device),
        torch.from_numpy(places).to(device),
        discrepancy,
        normal,
        batch_size,
    )
    labels = mixed.labels.astype(np.bool_)
    rated = []
    for score in candidates:
        of_windows = window_scores(parts, score, discrepancy, normal, network.config.layers)
        scores = smoothed(one_per_row(of_windows, places), lengths, score.smooth)
        choice = {"mode": score.mode, "normalise_errors": score.normalise_errors, "smooth": score.smooth}
        rated.append(choice | {"auc_pr": rank(scores, labels, 2).auc_pr})
    return sorted(rated, key=lambda choice: -choice["auc_pr"])
