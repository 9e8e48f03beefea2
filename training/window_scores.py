"""Windows through the network: error and discrepancy of their points, and the scores that need no more than those."""

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from at_infer.config import DiscrepancyConfig, ErrorKind, HeadRule, ScoreConfig, head_rule, head_rules
from at_infer.models.criterion import anomaly_score, error_weights
from at_infer.models.statistics import Normal
from training.discrepancy import association_discrepancy
from training.model import AnomalyTransformer
from training.views import feature_errors

STD_FLOOR = 1e-6  # of AssDis: a network without layers to disagree has none


class WindowErrors(NamedTuple):
    """What every score mode is a function of, one row per window (B,N)."""

    error: dict[ErrorKind, NDArray[np.float32]]
    discrepancy: dict[HeadRule, NDArray[np.float32]]
    """Per head rule."""
    difference: Tensor
    """Reconstruction minus window (B,N,F)."""


def measure_normal(
    network: AnomalyTransformer, values: Tensor, starts: Tensor, discrepancy: DiscrepancyConfig, batch_size: int
) -> Normal:
    """Statistics of the network on windows with few or no anomalies."""
    plain, centred = (ErrorKind(centred=centred, normalised=False) for centred in (False, True))
    ones = torch.ones(network.config.features, device=values.device)
    squares = {kind: torch.zeros_like(ones, dtype=torch.float64) for kind in (plain, centred)}
    kept: dict[HeadRule, list[Tensor]] = {rule: [] for rule in head_rules(discrepancy)}
    for difference, found in run_windows(network, values, starts, discrepancy, batch_size):
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
) -> WindowErrors:
    """Run the network over windows and keep error and discrepancy of each point."""
    kinds = [ErrorKind(centred, normalised) for centred in (False, True) for normalised in (False, True)]
    weights = {kind: torch.from_numpy(error_weights(normal, kind)).to(values.device) for kind in kinds}
    error: dict[ErrorKind, list[Tensor]] = {kind: [] for kind in kinds}
    kept: dict[HeadRule, list[Tensor]] = {rule: [] for rule in head_rules(discrepancy)}
    differences = []
    for difference, found in run_windows(network, values, starts, discrepancy, batch_size):
        differences.append(difference.cpu())
        for kind, of_kind in error.items():
            of_kind.append(feature_errors(difference, kind, weights[kind]).mean(-1).cpu())
        for rule, of_batch in found.items():
            kept[rule].append(of_batch.cpu())
    return WindowErrors(
        {kind: torch.cat(parts).numpy() for kind, parts in error.items()},
        {rule: torch.cat(parts).numpy() for rule, parts in kept.items()},
        torch.cat(differences),
    )


def run_windows(
    network: AnomalyTransformer, values: Tensor, starts: Tensor, discrepancy: DiscrepancyConfig, batch_size: int
) -> Iterator[tuple[Tensor, dict[HeadRule, Tensor]]]:
    """Batch by batch, x_hat - x (B,N,F) and AssDis (B,N) by either head rule."""
    steps, prior = torch.arange(network.config.window, device=values.device), network.config.prior
    for batch in starts.split(batch_size):
        with torch.inference_mode():
            x = values[batch[:, None] + steps]
            x_hat, associations = network(x)
            yield (
                x_hat - x,
                {
                    rule: association_discrepancy(associations, replace(discrepancy, head_rule=rule), prior)
                    for rule in head_rules(discrepancy)
                },
            )


def window_scores(
    parts: WindowErrors, score: ScoreConfig, discrepancy: DiscrepancyConfig, normal: Normal, layers: int
) -> NDArray[np.float32]:
    """Scores (B,N), formed as `score` says."""
    rule = head_rule(score.mode, discrepancy)
    return anomaly_score(
        parts.error[score.error_kind],
        parts.discrepancy[rule],
        score,
        layers_summed=1 if discrepancy.layer is not None else layers,
        discrepancy_statistics=normal.discrepancy[rule],
    )
