"""Fold biases into the products, and split Q, K, V and sigma into separate products.

A layer computes, with X its input and S the series association,

    Z = norm1(X + S (X W_V + b_V) W_O + b_O),   norm2(Z + gelu(Z W_1 + b_1) W_2 + b_2)

- Rows of S sum to one, so b_V passes through it and joins b_O.
- b_K adds the same to all logits of a row, which the softmax takes away again.
- norm1 adds b_2 with its own bias, and b_1 takes back what that adds to its product.

What is left are the biases of Q, sigma and O, and b_1, which runtimes add inside the GELU.
"""

import torch
from torch import Tensor, nn

from training.model import AnomalyTransformer, Layer


class Projections(nn.Module):
    """Q, K, V and the scale, each by its own product: as fast as one, and its result needs no copying into parts."""

    def __init__(self, q: nn.Linear, k: nn.Linear, v: nn.Linear, sigma: nn.Linear) -> None:
        super().__init__()
        self.q, self.k, self.v, self.sigma = q, k, v, sigma

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        """Like training.model.Projection."""
        return self.q(x), self.k(x), self.v(x), self.sigma(x)


@torch.no_grad()
def fold(network: AnomalyTransformer) -> None:
    """Replace the layers' parts; the network computes what it did before, up to rounding."""
    for layer in network.layers:
        assert isinstance(layer, Layer)
        _fold_attention(layer)
        _fold_feed_forward(layer)


def _fold_attention(layer: Layer) -> None:
    attention = layer.attention
    parts = attention.project.parts
    w_q, w_k, w_v, w_sigma = attention.project.weight.split(parts)
    b_q, _, b_v, b_sigma = attention.project.bias.split(parts)
    attention.project = Projections(  # type: ignore[assignment]
        linear(w_q, b_q), linear(w_k), linear(w_v), linear(w_sigma, b_sigma)
    )
    w_o, b_o = attention.out.weight, attention.out.bias
    attention.out = linear(w_o, b_o + _product(w_o, b_v))


def _fold_feed_forward(layer: Layer) -> None:
    first, second = layer.feed_forward[0], layer.feed_forward[2]
    assert isinstance(first, nn.Linear)
    assert isinstance(second, nn.Linear)
    w_1, b_1, b_2 = first.weight, first.bias, second.bias
    layer.norm1.bias = nn.Parameter(layer.norm1.bias + b_2)
    layer.feed_forward[0] = linear(w_1, b_1 - _product(w_1, b_2))
    layer.feed_forward[2] = linear(second.weight)


def _product(weight: Tensor, bias: Tensor) -> Tensor:
    return (weight.double() @ bias.double()).float()


def linear(weight: Tensor, bias: Tensor | None = None) -> nn.Linear:
    """A layer of these weights."""
    made = nn.Linear(weight.shape[1], weight.shape[0], bias=bias is not None)
    made.load_state_dict({"weight": weight} if bias is None else {"weight": weight, "bias": bias})
    return made
