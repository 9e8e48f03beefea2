"""The modules that are traced: raw windows in, scores or associations out."""

import math
from collections.abc import Sequence
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from at_infer.config import DiscrepancyConfig, ScoreConfig
from at_infer.errors import ConfigError
from at_infer.models.criterion import NO_STATISTICS, error_weights
from at_infer.models.statistics import Normal, Scaler
from export.fold import Projections, linear
from export.last_row import LastRow
from training.discrepancy import association_discrepancy
from training.model import AnomalyTransformer, Layer
from training.views import averages, feature_errors

Output = Literal["score", "error", "discrepancy", "reconstruction", "shape", "last"]
"""`last` is for the live graph alone."""
OUTPUTS: tuple[Output, ...] = ("score", "error", "discrepancy", "reconstruction")
FUSION_OUTPUTS: tuple[Output, ...] = ("reconstruction", "shape")
"""Mode `fusion` needs no discrepancy, so its graph computes neither that nor the prior."""

SATURATION = 1000.0  # an input beyond this, in standard deviations, would overflow half precision in a product
FP32_OPS = (
    "scaler, embedding, sigma, prior, attention products, softmax, layer norms, residuals, output projection, "
    "discrepancy, criterion"
)
FP32_OPS_BESIDE_PRODUCTS = "scaler, sigma, prior, softmax, layer norms, residuals, discrepancy, criterion"


class ScoreGraph(nn.Module):
    """Scaler, network, discrepancy and criterion: window (B,N,F) -> the chosen outputs."""

    error_weights: Tensor

    def __init__(
        self,
        network: AnomalyTransformer,
        scaler: Scaler,
        discrepancy: DiscrepancyConfig,
        score: ScoreConfig,
        normal: Normal | None,
        outputs: Sequence[Output] | None = None,
    ) -> None:
        super().__init__()
        self.scale = Scale(scaler, network.config.window)
        self.network = network
        self.discrepancy, self.score, self.normal = discrepancy, score, normal
        self.outputs = outputs or default_outputs(score)
        self.layers_summed = network.config.layers if discrepancy.layer is None else 1
        self.discrepancy_statistics = [0.0, 1.0]
        if normal is not None:
            self.discrepancy_statistics = normal.discrepancy[discrepancy.head_rule]
        elif score.mode == "calibrated":
            raise ConfigError(f"score_mode: {score.mode} {NO_STATISTICS}")
        weights = torch.ones(network.config.features)
        if score.error_kind.normalised:
            weights = torch.from_numpy(error_weights(normal, score.error_kind))
        self.register_buffer("error_weights", weights)
        folded = any(isinstance(module, Projections) for module in network.modules())
        self.last = LastRow(network) if "last" in self.outputs and folded else None
        lowered = any(isinstance(module, HalfProduct) for module in network.modules())
        self.mean = (PooledMean if lowered else LocalMean)(network.config.window)

    def forward(self, window: Tensor) -> tuple[Tensor, ...]:
        """`score`, `error`, `discrepancy` (B,N); `reconstruction`, `shape` (B,N,F) and `last` (B,F) as scaled."""
        x = self.scale(window)
        if self.last is not None and set(self.outputs) == {"last"}:
            return (self.last(x),)
        found: dict[Output, Tensor] = {}
        if {"score", "discrepancy"} & set(self.outputs):
            x_hat, associations = self.network(x)
            found["discrepancy"] = association_discrepancy(associations, self.discrepancy, self.network.config.prior)
        else:  # the exporter would remove the rest as unused, after tracing it
            x_hat = self.network.reconstruct(x)
        found["reconstruction"] = x_hat
        if "last" in self.outputs:
            found["last"] = x_hat[:, -1] if self.last is None else self.last(x)
        if "shape" in self.outputs:
            residual = x - x_hat
            found["shape"] = residual - self.mean(residual)
        if {"score", "error"} & set(self.outputs):
            errors = feature_errors(x_hat - x, self.score.error_kind, self.error_weights, self.mean)
            found["error"] = errors.mean(-1)
        if "score" in self.outputs:
            found["score"] = self.criterion(found["error"], found["discrepancy"])
        return tuple(found[name] for name in self.outputs)

    def criterion(self, error: Tensor, discrepancy: Tensor) -> Tensor:
        """The formulas of at_infer/models/criterion.py."""
        match self.score.mode:
            case "paper":
                return torch.softmax(-discrepancy, dim=-1) * error
            case "published":
                return torch.softmax(-self.score.temperature * self.layers_summed * discrepancy, dim=-1) * error
            case "reconstruction" | "centred":
                return error.clone()  # an output of its own: two outputs may not share a tensor
            case "calibrated":
                mean, std = self.discrepancy_statistics
                return (1 - torch.tanh((discrepancy - mean) / std / 2)) * error
            case "discrepancy":
                return torch.softmax(-discrepancy, dim=-1)
            case "addition":
                return torch.softmax(-discrepancy, dim=-1) + error
            case "fusion":
                raise ConfigError("outputs: mode fusion computes its score outside the graph; leave score out")


def default_outputs(score: ScoreConfig) -> tuple[Output, ...]:
    """Default outputs of a score graph."""
    return FUSION_OUTPUTS if score.mode == "fusion" else OUTPUTS


class AssociationsGraph(nn.Module):
    """Window (B,N,F) -> reconstruction, then prior, series and sigma of every layer."""

    def __init__(self, network: AnomalyTransformer, scaler: Scaler) -> None:
        super().__init__()
        self.scale = Scale(scaler, network.config.window)
        self.network = network

    def forward(self, window: Tensor) -> tuple[Tensor, ...]:
        """(B,N,F), and per layer (B,H,N,N), (B,H,N,N), (B,H,N)."""
        x_hat, associations = self.network(self.scale(window))
        return x_hat, *(part for association in associations for part in association)

    @property
    def outputs(self) -> list[str]:
        """Names in the order of `forward`."""
        parts = [f"{part}_{i}" for i in range(self.network.config.layers) for part in ("prior", "series", "sigma")]
        return ["reconstruction", *parts]


class Scale(nn.Module):
    """Raw values to the units the network was trained in."""

    mean: Tensor
    deviation: Tensor
    means: Tensor
    deviations: Tensor

    def __init__(self, scaler: Scaler, rows: int) -> None:
        """For windows of so many rows, each scaled in one piece: row by row takes ONNX Runtime ten times as long."""
        super().__init__()
        self.scaler, self.rows = scaler, rows
        self.register_buffer("mean", torch.tensor(scaler.mean, dtype=torch.float32))
        self.register_buffer("deviation", torch.tensor(scaler.scale, dtype=torch.float32))
        self.register_buffer("means", self.mean.repeat(rows))
        self.register_buffer("deviations", self.deviation.repeat(rows))

    def forward(self, window: Tensor) -> Tensor:
        """(B,N,F) -> (B,N,F)."""
        scaled: Tensor = ((window.flatten(1) - self.means) / self.deviations).unflatten(1, (self.rows, -1))
        return scaled


class LocalMean(nn.Module):
    """training.views.local_mean with its matrix as a constant of the graph."""

    averages: Tensor

    def __init__(self, window: int) -> None:
        super().__init__()
        self.register_buffer("averages", averages(window))

    def forward(self, x: Tensor) -> Tensor:
        """(B,N,F) -> (B,N,F)."""
        return self.averages @ x


class PooledMean(nn.Module):
    """The same for GPUs that cannot multiply matrices in float32."""

    def __init__(self, window: int) -> None:
        super().__init__()
        self.reach = window // 2

    def forward(self, x: Tensor) -> Tensor:
        """(B,N,F) -> (B,N,F)."""
        rows, padding = (2 * self.reach + 1, 1), (self.reach, 0)
        return F.avg_pool2d(x.unsqueeze(1), rows, stride=1, padding=padding, count_include_pad=False).squeeze(1)


class HalfLinear(nn.Module):
    """A linear layer whose product runs in half precision between float32 neighbours."""

    def __init__(self, weight: Tensor, bias: Tensor | None, dtype: torch.dtype) -> None:
        super().__init__()
        self.weight = nn.Parameter(weight.detach().to(dtype), requires_grad=False)
        self.bias = None if bias is None else nn.Parameter(bias.detach().float(), requires_grad=False)

    def forward(self, x: Tensor) -> Tensor:
        """(..., D) -> (..., E), float32 on both sides."""
        x = x.clamp(-SATURATION, SATURATION).to(self.weight.dtype)
        y = F.linear(x, self.weight).float()
        return y if self.bias is None else y + self.bias


class HalfProduct(nn.Module):
    """An attention product in half precision; what it multiplies is kept small enough to sum up to a finite value."""

    def __init__(self, summed: int, dtype: torch.dtype) -> None:
        super().__init__()
        self.limit, self.dtype = math.floor(math.sqrt(torch.finfo(torch.float16).max / summed)), dtype

    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        """(..., N, K) x (..., K, M) -> (..., N, M), float32 on both sides."""
        a, b = (t.clamp(-self.limit, self.limit).to(self.dtype) for t in (a, b))
        return torch.matmul(a, b).float()


class SplitProjection(nn.Module):
    """Q, K, V by one product and the scale by another, so that the two can have different precision."""

    def __init__(self, project: nn.Linear, heads: int, dtype: torch.dtype, scale_dtype: torch.dtype) -> None:
        super().__init__()
        weight, bias = project.weight, project.bias
        self.width = weight.shape[1]
        self.qkv = _linear(weight[:-heads], bias[:-heads], dtype)
        self.sigma = _linear(weight[-heads:], bias[-heads:], scale_dtype)

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        """Like training.model.Projection."""
        return *self.qkv(x).split(self.width, dim=-1), self.sigma(x)


def lower_precision(network: AnomalyTransformer, dtype: torch.dtype, *, every_product: bool = False) -> None:
    """Replace, in place, the products that may run in `dtype`; float32 only sets the scale's product apart.

    These are the products of a layer's input with Q, K, V, output and feed-forward weights, two thirds of the
    work. `every_product` lowers the others as well, for GPUs that cannot multiply in float32; what is not a
    product stays in float32 in any case.
    """
    rest = dtype if every_product else torch.float32
    for layer in network.layers:
        assert isinstance(layer, Layer)
        attention, config = layer.attention, network.config
        attention.project = SplitProjection(attention.project, config.heads, dtype, rest)  # type: ignore[assignment]
        attention.out = _linear(attention.out.weight, attention.out.bias, dtype)  # type: ignore[assignment]
        for i in (0, 2):
            product = layer.feed_forward[i]
            assert isinstance(product, nn.Linear)
            layer.feed_forward[i] = _linear(product.weight, product.bias, dtype)
        if every_product:
            attention.product = HalfProduct(max(config.window, config.width // config.heads), dtype)
    if every_product:
        network.embedding.token = _linear(network.embedding.token.weight, None, dtype)  # type: ignore[assignment]
        projection = network.projection
        network.projection = _linear(projection.weight, projection.bias, dtype)  # type: ignore[assignment]


def _linear(weight: Tensor, bias: Tensor | None, dtype: torch.dtype) -> nn.Module:
    if dtype != torch.float32:
        return HalfLinear(weight, bias, dtype)
    return linear(weight, bias)
