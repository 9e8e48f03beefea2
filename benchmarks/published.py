"""The published implementation, re-stated from its description: what the benchmarks compare with.

Separate projections, scale and distance table repeated to (B,H,N,N), and a scoring script that loops over batches of
windows and sums both KL terms over the layers. All of it runs with the weights of our own model.
"""

import math
from pathlib import Path

import numpy as np
import polars as pl
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from training.model import AnomalyTransformer, Layer


def published_forward(model: AnomalyTransformer, x: Tensor) -> tuple[Tensor, list[tuple[Tensor, Tensor]]]:
    """Reconstruction, and per layer (series, unnormalised prior), with the model's own weights."""
    features, width = model.config.features, model.config.width
    kernel = model.embedding.token.weight.view(width, 3, features).permute(0, 2, 1)
    tokens = F.conv1d(F.pad(x.permute(0, 2, 1), (1, 1), mode="circular"), kernel).transpose(1, 2)
    h = tokens + model.embedding.position
    associations = []
    for layer in model.layers:
        assert isinstance(layer, Layer)
        h, series, prior = published_layer(layer, h)
        associations.append((series, prior))
    out: Tensor = model.projection(model.norm(h))
    return out, associations


def published_layer(layer: Layer, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """One block; the feed-forward part as two convolutions of kernel size one."""
    attention, (b, n, d) = layer.attention, x.shape
    heads = attention.config.heads
    weights = attention.project.weight.split([d, d, d, heads])
    biases = attention.project.bias.split([d, d, d, heads])
    q, k, v, s = (F.linear(x, w, bias) for w, bias in zip(weights, biases, strict=True))
    q, k, v = (t.view(b, n, heads, -1) for t in (q, k, v))
    series = torch.softmax(torch.einsum("blhe,bshe->bhls", q, k) / math.sqrt(d / heads), dim=-1)
    sigma = torch.pow(3, torch.sigmoid(s.transpose(1, 2) * 5) + 1e-5) - 1
    sigma = sigma.unsqueeze(-1).repeat(1, 1, 1, n)
    steps = torch.arange(n, dtype=torch.float32)
    distance = (steps[:, None] - steps[None, :]).abs().unsqueeze(0).unsqueeze(0).repeat(b, heads, 1, 1)
    prior = 1.0 / (math.sqrt(2 * math.pi) * sigma) * torch.exp(-(distance**2) / 2 / (sigma**2))
    z = torch.einsum("bhls,bshd->blhd", series, v).contiguous().view(b, n, -1)
    x = layer.norm1(x + attention.out(z))
    up, down = layer.feed_forward[0], layer.feed_forward[2]
    assert isinstance(up, torch.nn.Linear)
    assert isinstance(down, torch.nn.Linear)
    y = F.gelu(F.conv1d(x.transpose(-1, 1), up.weight.unsqueeze(-1), up.bias))
    y = F.conv1d(y, down.weight.unsqueeze(-1), down.bias).transpose(-1, 1)
    return layer.norm2(x + y), series, prior


def published_kl(p: Tensor, q: Tensor) -> Tensor:
    """Per head with 1e-4 inside the logs, then averaged over heads."""
    return (p * (torch.log(p + 1e-4) - torch.log(q + 1e-4))).sum(-1).mean(1)


def published_script(path: Path, network: AnomalyTransformer, batch_size: int) -> NDArray[np.float32]:
    """Read the file and loop over batches of windows."""
    rows = pl.read_parquet(path).drop("timestamp").to_numpy()
    windows = torch.from_numpy(rows[: len(rows) // 100 * 100].reshape(-1, 100, rows.shape[1]))
    return np.concatenate([published_scores(network, x) for x in windows.split(batch_size)]).reshape(-1)


@torch.no_grad()
def published_scores(network: AnomalyTransformer, x: Tensor) -> NDArray[np.float32]:
    """(B,N,F) -> (B,N): both KL terms summed over the layers, softmax at temperature 50, times the error."""
    x_hat, associations = published_forward(network, x)
    error = (x - x_hat).square().mean(-1)
    series_loss, prior_loss = torch.zeros(()), torch.zeros(())
    for series, prior in associations:
        normalised = prior / prior.sum(-1).unsqueeze(-1).repeat(1, 1, 1, prior.shape[-1])
        series_loss = series_loss + published_kl(series, normalised) * 50
        prior_loss = prior_loss + published_kl(normalised, series) * 50
    scores: NDArray[np.float32] = (torch.softmax(-series_loss - prior_loss, dim=-1) * error).numpy()
    return scores
