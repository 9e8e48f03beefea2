"""The reconstruction of a window's last row alone, which is all that live scoring needs of a network of one layer.

One query needs neither keys and values nor embeddings of the other rows. With h_j = E x_j + p_j an embedded row, x_j
its values beside those of its neighbours and p_j its position, q . W_K h_j = (E^T W_K^T q) . x_j + (W_K^T q) . p_j,
and the sum of s_j W_V h_j is W_V E times the sum of s_j x_j, plus W_V times the sum of s_j p_j. What is left of the
attention are two products with the values themselves; all else is done once for each window. Neighbours are not put
beside each row: what is asked of the row before, the row and the row behind are three questions to all rows, whose
answers are added up one row apart.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from at_infer.config import ModelConfig
from export.fold import Projections, linear
from training.model import AnomalyTransformer, Layer


def fits(config: ModelConfig) -> bool:
    """Is there something to gain? Layers below the last need all rows, and a circular window is scored a row late."""
    return config.layers == 1 and config.padding == "replicate"


class LastRow(nn.Module):
    """A folded network of one layer, but for the scaler."""

    @torch.no_grad()
    def __init__(self, network: AnomalyTransformer) -> None:
        super().__init__()
        layer, embedding = network.layers[-1], network.embedding
        assert isinstance(layer, Layer)
        project, out = layer.attention.project, layer.attention.out
        assert isinstance(project, Projections)
        self.heads, width, self.window = network.config.heads, network.config.width, network.config.window
        w_q, w_k, w_v = (
            part.weight.double().unflatten(0, (self.heads, -1)) for part in (project.q, project.k, project.v)
        )  # (H,D/H,D)
        b_q = project.q.bias.double().unflatten(0, (self.heads, -1))
        w_o = out.weight.double().unflatten(1, (self.heads, -1))  # (D,H,D/H)
        position = embedding.position.double()  # (N,D)
        rows = torch.cat((embedding.token.weight.double().T, position))  # (3F+N,D): what makes an embedded row
        self.values, scale = embedding.token.in_features, math.sqrt(self.heads / width)
        asks = torch.einsum("cj,hej,hei->hci", rows, w_k, w_q).flatten(0, 1) * scale
        bias = torch.einsum("cj,hej,he->hc", rows, w_k, b_q).flatten() * scale
        self.token = linear(embedding.token.weight, position[-1].float())
        self.query = linear(asks.float(), bias.float())
        self.out = linear(torch.einsum("ohe,hei,ci->ohc", w_o, w_v, rows).flatten(1).float(), out.bias)
        self.layer, self.norm, self.projection = layer, network.norm, network.projection

    def forward(self, x: Tensor) -> Tensor:
        """Scaled windows (B,N,F) -> reconstruction of the last row (B,F)."""
        rows = torch.cat((x[:, :1], x, x[:, -1:]), dim=1)  # (B,N+2,F): the first and the last row are their neighbours
        last = self.token(rows[:, -3:].flatten(1))
        asked, of_position = self.query(last).unflatten(-1, (self.heads, -1)).tensor_split((self.values,), dim=-1)
        answers = asked.unflatten(-1, (3, -1)).flatten(1, 2) @ rows.transpose(1, 2)  # (B,3H,N+2)
        series = torch.softmax(self.one_apart(answers) + of_position, dim=-1)  # (B,H,N)
        seen = (self.three_apart(series) @ rows).flatten(1).unflatten(1, (self.heads, -1))  # (B,H,3F)
        z = self.layer.norm1(last + self.out(torch.cat((seen, series), dim=-1).flatten(1)))
        found: Tensor = self.projection(self.norm(self.layer.norm2(z + self.layer.feed_forward(z))))
        return found

    def one_apart(self, answers: Tensor) -> Tensor:
        """Answers to three questions per head (B,3H,N+2) -> their sums (B,H,N), question k taken k rows later."""
        skewed = F.pad(answers.flatten(1).unflatten(1, (self.heads, -1)), (0, 3))
        answered: Tensor = skewed.unflatten(-1, (3, -1))[..., : self.window].sum(dim=2)
        return answered

    def three_apart(self, series: Tensor) -> Tensor:
        """Weights (B,H,N) -> for each of three neighbours those of its rows (B,3H,N+2): the way back."""
        skewed = F.pad(torch.stack((series, series, series), dim=2), (0, 3)).flatten(2)[..., :-3]
        weights: Tensor = skewed.flatten(1).unflatten(1, (3 * self.heads, -1))
        return weights
