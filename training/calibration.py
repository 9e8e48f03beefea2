"""After training: what normal scores look like, on the validation part, in every score mode."""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from at_infer.config import (
    SCORE_MODES,
    Calibrated,
    DiscrepancyConfig,
    HeadRule,
    ScoreConfig,
    ScoreMode,
    Threshold,
    head_rule,
)
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


class CausalRows(NamedTuple):
    """Rows to be scored as a live system scores them, and the windows that this takes."""

    starts: NDArray[np.int64]
    """First rows of the windows, in order."""
    window: NDArray[np.int64]
    """(rows, smooth): for each row the windows whose last scores it is the mean of."""
    known: NDArray[np.bool_]
    """(rows, smooth): False before the first full window of a series."""

    def mean(self, last: NDArray[np.float32]) -> NDArray[np.float32]:
        """Scores of the windows' last rows -> smoothed scores of the rows."""
        total = np.where(self.known, last[self.window], 0.0).sum(axis=1, dtype=np.float64)
        means: NDArray[np.float64] = total / self.known.sum(axis=1)
        return means.astype(np.float32)


def causal_rows(
    starts: NDArray[np.int64], series_rows: Sequence[int], window: int, *, smooth: int, most_windows: int
) -> CausalRows:
    """All rows that end a window, or, if that takes more than `most_windows`, some of them at random.

    At random, because a fixed step would see the same phase of a periodic series again and again.
    """
    counts = -(-np.asarray(series_rows) // window)
    first_starts = starts[np.cumsum(counts) - counts]
    spans = [np.arange(first, first + rows - window + 1) for first, rows in zip(first_starts, series_rows, strict=True)]
    lowest = np.repeat(first_starts, [len(span) for span in spans])
    rows = np.concatenate(spans)
    if len(rows) > most_windows:
        chosen = np.random.default_rng(0).choice(len(rows), max(1, most_windows // smooth), replace=False)
        chosen.sort()
        rows, lowest = rows[chosen], lowest[chosen]
    needed = rows[:, None] - np.arange(smooth)
    known = needed >= lowest[:, None]
    found, inverse = np.unique(np.where(known, needed, rows[:, None]), return_inverse=True)
    return CausalRows(found, inverse.reshape(needed.shape), known)


def most_causal_windows(trained_windows: int) -> int:
    """As many as cost less than a tenth of the training: a window forth and back takes three times a window forth."""
    return min(max(2_000, trained_windows // 4), 20_000)


class Calibration(NamedTuple):
    """What is recorded of the validation scores."""

    threshold: Threshold
    """For the chosen mode."""
    quantiles: dict[str, list[float]]
    """Per mode, at QUANTILE_LEVELS."""
    causal: Calibrated
    """The same for rows that are each the last of their window, with causal smoothing."""


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
    most_causal_windows: int = 2_000,
) -> Calibration:
    """Score the windows of the validation part in every mode; the chosen one gives the threshold.

    `series_rows` are the rows of each series that the windows cover: smoothing stops at their borders. Then the same
    for rows that are each the last of their window, which reconstruction finds harder: at most `most_causal_windows`.
    """

    def score_windows(of: NDArray[np.int64]) -> dict[ScoreMode, NDArray[np.float32]]:
        parts = window_parts(network, values, torch.from_numpy(of).to(values.device), discrepancy, batch_size)
        return scores_by_mode(parts, discrepancy, score.temperature, network.config.layers)

    of_rows = {
        mode: smoothed(one_per_row(of_windows, starts), series_rows, score.smooth)
        for mode, of_windows in score_windows(starts).items()
    }
    whole = _record(of_rows, score.mode, ratio)
    rows = causal_rows(
        starts, series_rows, network.config.window, smooth=score.smooth, most_windows=most_causal_windows
    )
    causal = _record({mode: rows.mean(s[:, -1]) for mode, s in score_windows(rows.starts).items()}, score.mode, ratio)
    return Calibration(whole.threshold, whole.quantiles, causal)


def _record(scores: dict[ScoreMode, NDArray[np.float32]], mode: ScoreMode, ratio: float) -> Calibrated:
    chosen = scores[mode]
    threshold = Threshold(
        value=ratio_threshold(chosen, ratio), method="ratio", ratio=ratio, validation_rows=chosen.size
    )
    return Calibrated(threshold=threshold, quantiles={name: quantiles(of_rows) for name, of_rows in scores.items()})
