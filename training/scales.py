"""The learned scale sigma of every layer and head: quantiles over the rows of some windows."""

import torch
from torch import Tensor

from training.model import AnomalyTransformer

QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
MOST_WINDOWS = 128


@torch.inference_mode()
def learned_scales(
    network: AnomalyTransformer, values: Tensor, starts: Tensor, batch_size: int
) -> list[list[list[float]]]:
    """Layers x heads x QUANTILES of sigma, over windows of scaled rows that lie evenly among all."""
    some = starts[torch.linspace(0, len(starts) - 1, min(MOST_WINDOWS, len(starts))).long()]
    steps = torch.arange(network.config.window, device=values.device)
    sigma: list[list[Tensor]] = [[] for _ in network.layers]
    for batch in some.split(batch_size):
        _, associations = network(values[batch[:, None] + steps])
        for kept, association in zip(sigma, associations, strict=True):
            kept.append(association.sigma.cpu())
    by_head = [torch.cat(kept).transpose(0, 1).flatten(1) for kept in sigma]  # (B,H,N) -> (H,B*N)
    return [torch.quantile(rows, torch.tensor(QUANTILES), dim=1).T.tolist() for rows in by_head]
