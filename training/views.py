"""What of a reconstruction counts as its error: the torch twin of `feature_errors` in at_infer/models/criterion.py."""

from collections.abc import Callable

import torch
from torch import Tensor

from at_infer.config import ErrorKind


def local_mean(x: Tensor) -> Tensor:
    """Mean over the steps of the window that are up to half of it away: (B,N,F) -> (B,N,F)."""
    return averages(x.shape[1]).to(x) @ x


def averages(n: int) -> Tensor:
    """That mean as a matrix (N,N): one small product is far quicker than pooling."""
    step = torch.arange(n)
    near = ((step[:, None] - step).abs() <= n // 2).float()
    return near / near.sum(-1, keepdim=True)


def feature_errors(
    difference: Tensor, kind: ErrorKind, weights: Tensor, mean: Callable[[Tensor], Tensor] = local_mean
) -> Tensor:
    """x_hat - x (B,N,F) -> squared errors (B,N,F); `weights` (F,) are one over the usual error of each feature."""
    if kind.centred:
        difference = difference - mean(difference)
    errors = difference.square()
    return errors * weights if kind.normalised else errors
