"""Association discrepancy: how far the prior association is from the series association."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from at_infer.config import DiscrepancyConfig, Distance
from training.model import Association

FLOOR = 1e-8  # probabilities count as at least this inside a logarithm; the prior underflows to 0 at |i-j| > 27
PUBLISHED_EPSILON = 1e-4  # what the published code adds inside its logarithms


def association_discrepancy(associations: Sequence[Association], config: DiscrepancyConfig) -> Tensor:
    """AssDis (B,N): equation 3 with Algorithm 2, or the published code's order of averaging.

    The mean over the layers, or the chosen layer.
    """
    chosen = associations if config.layer is None else [associations[config.layer]]
    return torch.stack([_of_layer(a.prior, a.series, config) for a in chosen]).mean(0)


def _of_layer(prior: Tensor, series: Tensor, config: DiscrepancyConfig) -> Tensor:
    distance = DISTANCES[config.distance]
    series = series.to(prior.dtype)  # autocast may have left it in half precision
    if config.head_rule == "paper":
        return distance(prior.mean(1), series.mean(1), floored)  # (B,N,N) x2 -> (B,N)
    return distance(prior, series, published).mean(1)  # (B,H,N,N) x2 -> (B,H,N) -> (B,N)


Guard = Callable[[Tensor], Tensor]


def floored(p: Tensor) -> Tensor:
    """A probability that may have underflowed, for a logarithm."""
    return p.clamp_min(FLOOR)


def published(p: Tensor) -> Tensor:
    """The same as in the published code."""
    return p + PUBLISHED_EPSILON


def symmetric_kl(p: Tensor, s: Tensor, guard: Guard) -> Tensor:
    """KL(P||S) + KL(S||P), which is the sum of (P - S) log(P / S)."""
    return ((p - s) * (guard(p) / guard(s)).log()).sum(-1)


def jensen_shannon(p: Tensor, s: Tensor, guard: Guard) -> Tensor:
    """Mean KL divergence of P and S to their average."""
    m = guard((p + s) / 2)
    return (p * (guard(p) / m).log() + s * (guard(s) / m).log()).sum(-1) / 2


def wasserstein(p: Tensor, s: Tensor, _: Guard) -> Tensor:
    """Earth mover's distance over positions: the area between the two cumulative distributions."""
    return (p - s).cumsum(-1).abs().sum(-1)


def cross_entropy(p: Tensor, s: Tensor, guard: Guard) -> Tensor:
    """H(P,S) + H(S,P), symmetrised like the KL divergence."""
    return -(p * guard(s).log() + s * guard(p).log()).sum(-1)


def l2(p: Tensor, s: Tensor, _: Guard) -> Tensor:
    """Euclidean distance; the floor keeps its gradient finite where P equals S."""
    return (p - s).square().sum(-1).clamp_min(1e-12).sqrt()


DISTANCES: dict[Distance, Callable[[Tensor, Tensor, Guard], Tensor]] = {
    "kl": symmetric_kl,
    "js": jensen_shannon,
    "wasserstein": wasserstein,
    "cross-entropy": cross_entropy,
    "l2": l2,
}
