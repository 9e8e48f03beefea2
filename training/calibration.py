"""After training: what normal scores look like, on the validation part, in every score mode."""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from at_infer.config import SCORE_MODES, DiscrepancyConfig, HeadRule, ScoreConfig, ScoreMode, Threshold, head_rule
from at_infer.criterion import anomaly_score
from at_infer.threshold import quantiles, ratio_threshold
from at_infer.windows import MovingMean
from training.discrepancy import association_discrepancy
from training.model import AnomalyTransformer


class Parts(NamedTuple):
    """What every score mode is a function of, one row per window (B,N)."""

    error: NDArray[np.float32]
    discrepancy: dict[HeadRule, NDArray[np.float32]]
    """Per head rule."""


@torch.inference_mode()
def window_parts(
    network: AnomalyTransformer, values: Tensor, starts: Tensor, discrepancy: DiscrepancyConfig, batch_size: int
) -> Parts:
    """Run the network over windows and keep error and discrepancy of each point."""
    steps = torch.arange(network.config.window, device=values.device)
    error: list[Tensor] = []
    found: dict[HeadRule, list[Tensor]] = {rule: [] for rule in get_args(HeadRule)}
    for batch in starts.split(batch_size):
        x = values[batch[:, None] + steps]
        x_hat, associations = network(x)
        error.append((x_hat - x).square().mean(-1).cpu())
        for rule, kept in found.items():
            kept.append(association_discrepancy(associations, replace(discrepancy, head_rule=rule)).cpu())
    return Parts(torch.cat(error).numpy(), {rule: torch.cat(kept).numpy() for rule, kept in found.items()})


def scores_by_mode(
    parts: Parts, discrepancy: DiscrepancyConfig, temperature: float, layers: int
) -> dict[ScoreMode, NDArray[np.float32]]:
    """Scores (B,N) of every mode."""
    return {
        mode: anomaly_score(
            parts.error,
            parts.discrepancy[head_rule(mode, discrepancy)],
            ScoreConfig(mode=mode, temperature=temperature),
            layers_summed=1 if discrepancy.layer is not None else layers,
        )
        for mode in SCORE_MODES
    }


def one_per_row(scores: NDArray[np.float32], starts: NDArray[np.int64]) -> NDArray[np.float32]:
    """Scores of the rows that windows (in order) cover, each row once: from its first window."""
    window = scores.shape[1]
    overlap = np.zeros(len(starts), np.int64)
    overlap[1:] = np.clip(starts[:-1] + window - starts[1:], 0, window)
    return scores[np.arange(window)[None, :] >= overlap[:, None]]


def smoothed(scores: NDArray[np.float32], series_rows: Sequence[int], width: int) -> NDArray[np.float32]:
    """Centred moving mean of the rows of each series."""
    if width == 1:
        return scores
    parts = []
    for rows in np.split(scores, np.cumsum(series_rows)[:-1]):
        mean = MovingMean(width, causal=False)
        parts += [mean.add(rows[:, None])[:, 0], mean.end()[:, 0]]
    return np.concatenate(parts)


class Calibration(NamedTuple):
    """What is recorded of the validation scores."""

    threshold: Threshold
    """For the chosen mode."""
    quantiles: dict[str, list[float]]
    """Per mode, at QUANTILE_LEVELS."""


def calibrate(
    network: AnomalyTransformer,
    values: Tensor,
    starts: NDArray[np.int64],
    series_rows: Sequence[int],
    *,
    discrepancy: DiscrepancyConfig,
    score: ScoreConfig,
    ratio: float,
    batch_size: int = 32,
) -> Calibration:
    """Score the windows of the validation part in every mode; the chosen one gives the threshold.

    `series_rows` are the rows of each series that the windows cover: smoothing stops at their borders.
    """
    parts = window_parts(network, values, torch.from_numpy(starts).to(values.device), discrepancy, batch_size)
    windows = scores_by_mode(parts, discrepancy, score.temperature, network.config.layers)
    scores = {
        mode: smoothed(one_per_row(of_windows, starts), series_rows, score.smooth)
        for mode, of_windows in windows.items()
    }
    recorded = scores[score.mode]
    threshold = Threshold(
        value=ratio_threshold(recorded, ratio), method="ratio", ratio=ratio, validation_rows=recorded.size
    )
    return Calibration(threshold, {mode: quantiles(of_rows) for mode, of_rows in scores.items()})
