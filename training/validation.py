"""After training: what normal scores look like, on the validation part, in every score mode."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from at_infer.config import (
    SCORE_MODES,
    Align,
    DiscrepancyConfig,
    ErrorKind,
    HeadRule,
    Normal,
    ScoreConfig,
    ScoreMode,
    Threshold,
    ValidationRecord,
    head_rule,
)
from at_infer.models.criterion import anomaly_score, error_weights
from at_infer.scoring.windows import MovingMean
from at_infer.thresholds.quantiles import quantiles
from at_infer.thresholds.ratio import ratio_threshold
from training.discrepancy import association_discrepancy
from training.model import AnomalyTransformer
from training.views import feature_errors

STD_FLOOR = 1e-6  # of AssDis: a network without layers to disagree has none


class Parts(NamedTuple):
    """What every score mode is a function of, one row per window (B,N)."""

    error: dict[ErrorKind, NDArray[np.float32]]
    discrepancy: dict[HeadRule, NDArray[np.float32]]
    """Per head rule."""


def usual(
    network: AnomalyTransformer, values: Tensor, starts: Tensor, discrepancy: DiscrepancyConfig, batch_size: int
) -> Normal:
    """What the network does on windows without anomalies, or nearly so."""
    plain, centred = (ErrorKind(centred=centred, normalised=False) for centred in (False, True))
    ones = torch.ones(network.config.features, device=values.device)
    squares = {kind: torch.zeros_like(ones, dtype=torch.float64) for kind in (plain, centred)}
    kept: dict[HeadRule, list[Tensor]] = {rule: [] for rule in get_args(HeadRule)}
    for difference, found in _run(network, values, starts, discrepancy, batch_size):
        for kind, total in squares.items():
            total += feature_errors(difference, kind, ones).double().sum((0, 1))
        for rule, of_batch in found.items():
            kept[rule].append(of_batch.cpu())
    points = len(starts) * network.config.window
    moments = {rule: torch.cat(parts).double() for rule, parts in kept.items()}
    return Normal(
        error=(squares[plain] / points).tolist(),
        centred_error=(squares[centred] / points).tolist(),
        discrepancy={
            rule: [d.mean().item(), max(d.std(correction=0).item(), STD_FLOOR)] for rule, d in moments.items()
        },
    )


def window_parts(
    network: AnomalyTransformer,
    values: Tensor,
    starts: Tensor,
    discrepancy: DiscrepancyConfig,
    normal: Normal,
    batch_size: int,
) -> Parts:
    """Run the network over windows and keep error and discrepancy of each point."""
    kinds = [ErrorKind(centred, normalised) for centred in (False, True) for normalised in (False, True)]
    weights = {kind: torch.from_numpy(error_weights(normal, kind)).to(values.device) for kind in kinds}
    error: dict[ErrorKind, list[Tensor]] = {kind: [] for kind in kinds}
    kept: dict[HeadRule, list[Tensor]] = {rule: [] for rule in get_args(HeadRule)}
    for difference, found in _run(network, values, starts, discrepancy, batch_size):
        for kind, of_kind in error.items():
            of_kind.append(feature_errors(difference, kind, weights[kind]).mean(-1).cpu())
        for rule, of_batch in found.items():
            kept[rule].append(of_batch.cpu())
    return Parts(
        {kind: torch.cat(parts).numpy() for kind, parts in error.items()},
        {rule: torch.cat(parts).numpy() for rule, parts in kept.items()},
    )


def _run(
    network: AnomalyTransformer, values: Tensor, starts: Tensor, discrepancy: DiscrepancyConfig, batch_size: int
) -> Iterator[tuple[Tensor, dict[HeadRule, Tensor]]]:
    """Batch by batch, x_hat - x (B,N,F) and AssDis (B,N) by either head rule."""
    steps = torch.arange(network.config.window, device=values.device)
    for batch in starts.split(batch_size):
        with torch.inference_mode():
            x = values[batch[:, None] + steps]
            x_hat, associations = network(x)
            yield (
                x_hat - x,
                {
                    rule: association_discrepancy(associations, replace(discrepancy, head_rule=rule))
                    for rule in get_args(HeadRule)
                },
            )


def window_scores(
    parts: Parts, score: ScoreConfig, discrepancy: DiscrepancyConfig, normal: Normal, layers: int
) -> NDArray[np.float32]:
    """Scores (B,N), formed as `score` says."""
    rule = head_rule(score.mode, discrepancy)
    return anomaly_score(
        parts.error[score.error_kind],
        parts.discrepancy[rule],
        score,
        layers_summed=1 if discrepancy.layer is not None else layers,
        usual_discrepancy=normal.discrepancy[rule],
    )


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


def first_rows(starts: NDArray[np.int64], series_rows: Sequence[int], window: int) -> NDArray[np.int64]:
    """Where each series begins, of which `starts` are windows that do not overlap but for the last."""
    counts = -(-np.asarray(series_rows) // window)
    first: NDArray[np.int64] = starts[np.cumsum(counts) - counts]
    return first


def causal_rows(
    starts: NDArray[np.int64], series_rows: Sequence[int], window: int, *, smooth: int, most_windows: int
) -> CausalRows:
    """All rows that end a window, or, if that takes more than `most_windows`, some of them at random.

    At random, because a fixed step would see the same phase of a periodic series again and again.
    """
    first_starts = first_rows(starts, series_rows, window)
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


class MeasuredValidation(NamedTuple):
    """What is recorded of the validation scores."""

    records: list[ValidationRecord]
    """Of whole windows, and of rows that are each the last of their window, with causal smoothing."""
    normal: Normal


def measure_validation(
    network: AnomalyTransformer,
    values: Tensor,
    starts: NDArray[np.int64],
    series_rows: Sequence[int],
    *,
    discrepancy: DiscrepancyConfig,
    score: ScoreConfig,
    ratio: float,
    normal: Normal | None = None,
    batch_size: int = 32,
    most_causal_windows: int = 2_000,
) -> MeasuredValidation:
    """Score the windows of the validation part in every mode; the chosen one gives the threshold.

    `series_rows` are the rows of each series that the windows cover: smoothing stops at their borders. Then the same
    for rows that are each the last of their window, which reconstruction finds harder: at most `most_causal_windows`.
    """
    places = torch.from_numpy(starts).to(values.device)
    usually = normal or usual(network, values, places, discrepancy, batch_size)

    def score_windows(of: NDArray[np.int64]) -> dict[ScoreMode, NDArray[np.float32]]:
        parts = window_parts(network, values, torch.from_numpy(of).to(values.device), discrepancy, usually, batch_size)
        return {
            mode: window_scores(parts, replace(score, mode=mode), discrepancy, usually, network.config.layers)
            for mode in SCORE_MODES
        }

    of_rows = {
        mode: smoothed(one_per_row(of_windows, starts), series_rows, score.smooth)
        for mode, of_windows in score_windows(starts).items()
    }
    whole = _record("window", of_rows, score.mode, ratio)
    rows = causal_rows(
        starts, series_rows, network.config.window, smooth=score.smooth, most_windows=most_causal_windows
    )
    of_last = {mode: rows.mean(of_windows[:, -1]) for mode, of_windows in score_windows(rows.starts).items()}
    return MeasuredValidation([whole, _record("last", of_last, score.mode, ratio)], usually)


def _record(
    align: Align, scores: dict[ScoreMode, NDArray[np.float32]], mode: ScoreMode, ratio: float
) -> ValidationRecord:
    chosen = scores[mode]
    threshold = Threshold(
        value=ratio_threshold(chosen, ratio), method="ratio", ratio=ratio, validation_rows=chosen.size
    )
    kept: dict[str, list[float]] = {name: quantiles(of_rows) for name, of_rows in scores.items()}
    return ValidationRecord(align=align, threshold=threshold, quantiles=kept)
