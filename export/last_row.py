"""The reconstruction of a window's last row alone, which is all that live scoring needs of a network of one layer.

One query needs no keys and values of the other rows: with h_j the rows, q . W_K h_j = (W_K^T q) . h_j, and the sum of
s_j W_V h_j is W_V times the sum of s_j h_j. What is left of the attention are two products with the rows themselves.
"""

import math

import torch
from torch import Tensor, nn

from at_infer.config import ModelConfig
from export.fold import Projections, linear
from training.model import AnomalyTransformer, Layer


def fits(config: ModelConfig) -> bool:
    """Is there something to gain? Layers below the last need all rows, and a circular window is scored a row late."""
    return config.layers == 1 and config.padding == "replicate"


class LastRow(nn.Module):
    """The last layer of a folded network, and what follows it."""

    @torch.no_grad()
    def __init__(self, network: AnomalyTransformer) -> None:
        super().__init__()
        layer = network.layers[-1]
        assert isinstance(layer, Layer)
        project, out = layer.attention.project, layer.attention.out
        assert isinstance(project, Projections)
        self.heads, width = network.config.heads, network.config.width
        w_q, w_k, w_v = (
            part.weight.double().unflatten(0, (self.heads, -1)) for part in (project.q, project.k, project.v)
        )  # (H,D/H,D)
        b_q = project.q.bias.double().unflatten(0, (self.heads, -1))
        w_o = out.weight.double().unflatten(1, (self.heads, -1))  # (D,H,D/H)
        scale = math.sqrt(self.heads / width)
        asks = torch.einsum("hej,hei->hji", w_k, w_q).flatten(0, 1) * scale
        bias = torch.einsum("hej,he->hj", w_k, b_q).flatten() * scale
        self.query = linear(asks.float(), bias.float())
        self.out = linear(torch.einsum("ohe,hei->ohi", w_o, w_v).flatten(1).float(), out.bias)
        self.layer, self.norm, self.projection = layer, network.norm, network.projection

    def forward(self, rows: Tensor) -> Tensor:
        """Rows of windows as they enter the layer (B,N,D) -> reconstruction of the last one (B,F)."""
        last = rows[:, -1]
        asked = self.query(last).unflatten(-1, (self.heads, -1))  # (B,H,D)
        series = torch.softmax(asked @ rows.transpose(1, 2), dim=-1)  # (B,H,N)
        z = self.layer.norm1(last + self.out((series @ rows).flatten(1)))
        found: Tensor = self.projection(self.norm(self.layer.norm2(z + self.layer.feed_forward(z))))
        return found
