"""The Anomaly Transformer (Xu et al., ICLR 2022), whole.

Shapes: B windows, N steps, F features, D channels, H heads, L layers.
"""

import math
from collections.abc import Callable
from typing import NamedTuple, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from at_infer.config import ModelConfig, Prior


class Association(NamedTuple):
    """What Anomaly-Attention of one layer saw; each row of `prior` and `series` sums to one."""

    prior: Tensor
    """P (B,H,N,N)."""
    series: Tensor
    """S (B,H,N,N)."""
    sigma: Tensor
    """Scale of the Gaussian, or exponent of the power law (B,H,N)."""


class AnomalyTransformer(nn.Module):
    """Reconstructs a window and returns the associations of every layer."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        self.embedding = Embedding(config)
        self.layers = nn.ModuleList(Layer(config) for _ in range(config.layers))
        self.norm = nn.LayerNorm(config.width)
        self.projection = nn.Linear(config.width, config.features)

    def forward(self, x: Tensor) -> tuple[Tensor, list[Association]]:
        """(B,N,F) -> reconstruction (B,N,F), associations of L layers."""
        x = self.embedding(x)  # (B,N,D)
        associations = []
        for layer in self.layers:
            x, association = layer(x)
            associations.append(association)
        return self.projection(self.norm(x)), associations

    def reconstruct(self, x: Tensor) -> Tensor:
        """The reconstruction alone: neither scale nor prior take part in it."""
        x = self.embedding(x)
        for layer in self.layers:
            assert isinstance(layer, Layer)
            x = layer.transform(x, layer.attention.attend(x)[0])
        return cast(Tensor, self.projection(self.norm(x)))


class Embedding(nn.Module):
    """X^0: a convolution over three neighbouring steps plus sinusoidal positions.

    The first and the last step have one neighbour each. In its place stands the step itself (`replicate`), or, as in
    the published code, the step at the other end of the window (`circular`), which makes both ends hard to reconstruct.
    """

    position: Tensor

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        # The convolution as one matrix product: its weight is (D, 3F), the taps t-1, t, t+1 side by side.
        self.circular = config.padding == "circular"
        self.token = nn.Linear(3 * config.features, config.width, bias=False)
        nn.init.kaiming_normal_(self.token.weight, mode="fan_in", nonlinearity="leaky_relu")
        self.register_buffer("position", sinusoids(config.window, config.width), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """(B,N,F) -> (B,N,D)."""
        first, last = x[:, :1], x[:, -1:]
        before = torch.cat((last if self.circular else first, x[:, :-1]), dim=1)
        after = torch.cat((x[:, 1:], first if self.circular else last), dim=1)
        tokens: Tensor = self.token(torch.cat((before, x, after), dim=-1))
        return tokens + self.position


class Layer(nn.Module):
    """Equation 1: attention and feed-forward, each with a residual and a layer norm."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.attention = AnomalyAttention(config)
        self.norm1 = nn.LayerNorm(config.width)
        self.feed_forward = nn.Sequential(
            nn.Linear(config.width, config.feed_forward),
            nn.GELU(),
            nn.Linear(config.feed_forward, config.width),
        )
        self.norm2 = nn.LayerNorm(config.width)

    def forward(self, x: Tensor) -> tuple[Tensor, Association]:
        """(B,N,D) -> (B,N,D) and what its attention saw."""
        attended, association = self.attention(x)
        return self.transform(x, attended), association

    def transform(self, x: Tensor, attended: Tensor) -> Tensor:
        """What follows the attention."""
        z = self.norm1(x + attended)
        return cast(Tensor, self.norm2(z + self.feed_forward(z)))


class AnomalyAttention(nn.Module):
    """Equation 2 and Algorithm 1: self-attention beside a prior that knows only the distance |i - j|."""

    distance: Tensor

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        self.project = Projection(config)
        self.out = nn.Linear(config.width, config.width)
        self.product: Callable[[Tensor, Tensor], Tensor] = torch.matmul  # export may lower its precision
        self.register_buffer("distance", distances(config.window, config.prior), persistent=False)

    def forward(self, x: Tensor) -> tuple[Tensor, Association]:
        """(B,N,D) -> (B,N,D), association."""
        attended, series, s = self.attend(x)
        sigma = self.scale(s)
        return attended, Association(self.prior(sigma), series, sigma)

    def attend(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """(B,N,D) -> (B,N,D), S (B,H,N,N), raw scale (B,N,H)."""
        d, h = self.config.width, self.config.heads
        q, k, v, s = self.project(x)  # (B,N,D) x3, (B,N,H)
        q, k, v = (t.unflatten(-1, (h, -1)).transpose(1, 2) for t in (q, k, v))  # (B,H,N,D/H)
        series = torch.softmax(self.product(q * math.sqrt(h / d), k.transpose(-1, -2)), dim=-1)
        z = self.product(series, v).transpose(1, 2).flatten(2)  # (B,N,D)
        return self.out(z), series, s

    def scale(self, s: Tensor) -> Tensor:
        """(B,N,H) -> sigma (B,H,N), kept in (1e-5, 2) as in the published code."""
        s = s.transpose(1, 2)
        if self.config.prior == "gaussian-fixed":
            return torch.ones_like(s)
        return torch.pow(3.0, torch.sigmoid(5.0 * s) + 1e-5) - 1.0

    def prior(self, sigma: Tensor) -> Tensor:
        """sigma (B,H,N) -> P (B,H,N,N)."""
        return torch.softmax(-self.distance * steepness(sigma, self.config.prior), dim=-1)


def distances(window: int, prior: Prior) -> Tensor:
    """Table (N,N): P is a softmax of -distance * steepness; the factor 1 / (sqrt(2 pi) sigma) cancels in Rescale."""
    step = torch.arange(window, dtype=torch.float32)
    distance = (step[:, None] - step[None, :]).abs()
    return distance.add(1).log() if prior == "power-law" else distance.square() / 2


def steepness(sigma: Tensor, prior: Prior) -> Tensor:
    """sigma (B,H,N) -> (B,H,N,1)."""
    return (sigma if prior == "power-law" else sigma.square().reciprocal()).unsqueeze(-1)


def log_prior(sigma: Tensor, prior: Prior) -> Tensor:
    """sigma (B,H,N) -> log P (B,H,N,N), also where P underflows."""
    distance = distances(sigma.shape[-1], prior).to(sigma.device)
    return torch.log_softmax(-distance * steepness(sigma, prior), dim=-1)


class Projection(nn.Linear):
    """W_Q, W_K, W_V and W_sigma as one matrix product."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config.width, 3 * config.width + config.heads)
        self.parts = [config.width, config.width, config.width, config.heads]

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:  # type: ignore[override]
        """(B,N,D) -> Q, K, V (B,N,D), raw scale (B,N,H)."""
        *qkv, s = super().forward(x).split(self.parts, dim=-1)
        if s.dtype in (torch.float16, torch.bfloat16):  # autocast: the scale is too delicate for half precision
            h = self.parts[-1]
            with torch.autocast(x.device.type, enabled=False):
                s = F.linear(x.float(), self.weight[-h:], self.bias[-h:])
        return *qkv, s


def sinusoids(length: int, width: int) -> Tensor:
    """Position table (length, width): sines in even columns, cosines in odd ones."""
    position = torch.arange(length, dtype=torch.float32).unsqueeze(1)
    frequency = torch.exp(torch.arange(0, width, 2, dtype=torch.float32) * -(math.log(10000.0) / width))
    table = torch.zeros(length, width)
    table[:, 0::2] = torch.sin(position * frequency)
    table[:, 1::2] = torch.cos(position * frequency)[:, : width // 2]
    return table
