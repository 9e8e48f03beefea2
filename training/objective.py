"""What training minimises: reconstruction loss and the minimax strategy (equations 4 and 5)."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from at_infer.config import DiscrepancyConfig, Prior, Strategy
from training.discrepancy import association_discrepancy
from training.model import Association


class Objective(NamedTuple):
    """Losses of one batch, each a scalar."""

    loss: Tensor
    """What to call `backward` on."""
    reconstruction: Tensor
    """Mean squared error."""
    discrepancy: Tensor
    """Mean of AssDis."""


def objective(
    x: Tensor,
    x_hat: Tensor,
    associations: Sequence[Association],
    *,
    discrepancy: DiscrepancyConfig,
    strategy: Strategy,
    lambda_: float,
    prior: Prior = "gaussian",
) -> Objective:
    """The loss of a batch whose one backward pass serves both phases of the minimax strategy.

    The phases add up to 2 mse + lambda (AssDis(P, S_detach) - AssDis(P_detach, S)). Its gradient is that of
    2 mse + lambda AssDis(P, S) with the sign of what reaches S turned round, so AssDis is computed once.
    """
    reconstruction = (x_hat.to(x.dtype) - x).square().mean()
    if strategy == "minimax":
        associations = [a._replace(series=_ReverseGradient.apply(a.series)) for a in associations]  # type: ignore[no-untyped-call]
    mean_discrepancy = association_discrepancy(associations, discrepancy, prior).mean()
    match strategy:
        case "minimax":
            loss = 2 * reconstruction + lambda_ * mean_discrepancy
        case "maximize":
            loss = reconstruction - lambda_ * mean_discrepancy
        case "reconstruction":
            loss = reconstruction
    return Objective(loss, reconstruction.detach(), mean_discrepancy.detach())


class _ReverseGradient(torch.autograd.Function):
    """Identity whose gradient is negated: one term to minimise for P and to maximise for S."""

    @staticmethod
    def forward(_: object, x: Tensor) -> Tensor:
        return x.view_as(x)

    @staticmethod
    def backward(_: object, gradient: Tensor) -> Tensor:
        return -gradient
