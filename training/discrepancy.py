"""Association discrepancy: how far the prior association is from the series association."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from at_infer.config import DiscrepancyConfig, Distance, Prior
from training.model import Association, log_prior

FLOOR = 1e-8  # probabilities count as at least this inside a logarithm; the prior underflows to 0 at |i-j| > 27
PUBLISHED_EPSILON = 1e-4  # what the published code adds inside its logarithms
TINY = torch.finfo(torch.float32).tiny  # rule exact: a mean series association that underflows counts as this


def association_discrepancy(
    associations: Sequence[Association], config: DiscrepancyConfig, prior: Prior = "gaussian"
) -> Tensor:
    """AssDis (B,N): equation 3 with Algorithm 2, or the published code's order of averaging.

    The mean over the layers, or the chosen layer. Rule `exact` derives log P from sigma, by the kind of `prior`.
    """
    chosen = associations if config.layer is None else [associations[config.layer]]
    if config.head_rule == "exact":
        return torch.stack([_exact(log_prior(a.sigma, prior), a.series.to(a.sigma.dtype)) for a in chosen]).mean(0)
    return torch.stack([_of_layer(a.prior, a.series, config) for a in chosen]).mean(0)


def _exact(log_p: Tensor, series: Tensor) -> Tensor:
    """log P and S (B,H,N,N) -> symmetrised KL divergence of their means over the heads (B,N), without a floor on P."""
    most = log_p.amax(1, keepdim=True).detach()
    log_p = (log_p - most).exp().mean(1).log() + most.squeeze(1)  # (B,N,N), the logarithm of the mean
    s = series.mean(1)
    return ((log_p.exp() - s) * (log_p - s.clamp_min(TINY).log())).sum(-1)


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
