"""What of a reconstruction counts as its error: the torch twin of `feature_errors` in at_infer/criterion.py."""

import torch.nn.functional as F
from torch import Tensor

from at_infer.config import ErrorKind


def feature_errors(difference: Tensor, kind: ErrorKind, weights: Tensor) -> Tensor:
    """x_hat - x (B,N,F) -> squared errors (B,N,F); `weights` (F,) are one over the usual error of each feature."""
    if kind.centred:
        difference = difference - local_mean(difference)
    errors = difference.square()
    return errors * weights if kind.normalised else errors


def local_mean(x: Tensor) -> Tensor:
    """Mean over the steps of the window that are up to half of it away: (B,N,F) -> (B,N,F)."""
    reach = x.shape[1] // 2
    # As a picture of N x F: engines know that pooling, and need no matrix product for it.
    pooled = F.avg_pool2d(x.unsqueeze(1), (2 * reach + 1, 1), stride=1, padding=(reach, 0), count_include_pad=False)
    return pooled.squeeze(1)
