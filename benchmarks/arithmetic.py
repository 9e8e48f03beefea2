"""What scoring one window takes on paper: operations and bytes, counted from the shape of the model.

Matrix products are counted exactly, a multiplication and an addition as two operations. Everything else happens on
the maps of the heads (softmax, prior, logarithms, discrepancy) or on rows (norms, biases, GELU) and is counted as
operations per element.
"""

from dataclasses import dataclass
from typing import Literal

from at_infer.config import ModelConfig

Precision = Literal["fp32", "fp16", "bf16", "int8"]
PRECISIONS: tuple[Precision, ...] = ("fp32", "fp16", "bf16", "int8")

# An exponential or logarithm is a polynomial of about 20 operations. A map takes two exponentials (softmax and prior)
# and about 20 sums and products; rows take two norms, biases and a GELU.
OPERATIONS_PER_MAP_ELEMENT = 60
OPERATIONS_PER_ROW_ELEMENT = 60


@dataclass(frozen=True, slots=True)
class Product:
    """(rows, inner) times (inner, columns), `times` times per window."""

    rows: int
    inner: int
    columns: int
    times: int
    has_weights: bool
    """Products of attention multiply activations with activations."""
    can_be_int8: bool

    @property
    def operations(self) -> int:
        """Two per multiplication and addition."""
        return 2 * self.rows * self.inner * self.columns * self.times

    @property
    def weights(self) -> int:
        """Elements that are the same for every window."""
        return self.inner * self.columns * self.times if self.has_weights else 0

    @property
    def activations(self) -> int:
        """Elements of operands that are read, and of results that are written."""
        operands = self.rows * self.inner + (0 if self.has_weights else self.inner * self.columns)
        return (operands + self.rows * self.columns) * self.times


def products(model: ModelConfig) -> list[Product]:
    """Every matrix product of a window, in order; layers and heads as `times`."""
    n, f, d, h, depth = model.window, model.features, model.width, model.heads, model.layers
    per_head = d // h
    return [
        Product(n, 3 * f, d, 1, has_weights=True, can_be_int8=False),  # embedding: a convolution over three rows
        Product(n, d, 3 * d, depth, has_weights=True, can_be_int8=True),  # Q, K, V
        Product(n, d, h, depth, has_weights=True, can_be_int8=False),  # sigma
        Product(n, per_head, n, depth * h, has_weights=False, can_be_int8=False),  # Q times K
        Product(n, n, per_head, depth * h, has_weights=False, can_be_int8=False),  # series association times V
        Product(n, d, d, depth, has_weights=True, can_be_int8=True),  # out
        Product(n, d, model.feed_forward, depth, has_weights=True, can_be_int8=True),
        Product(n, model.feed_forward, d, depth, has_weights=True, can_be_int8=True),
        Product(n, d, f, 1, has_weights=True, can_be_int8=False),  # reconstruction
    ]


def product_operations(model: ModelConfig) -> int:
    """Of all matrix products of a window."""
    return sum(product.operations for product in products(model))


def int8_operations(model: ModelConfig) -> int:
    """Of the products that int8 makes integer ones."""
    return sum(product.operations for product in products(model) if product.can_be_int8)


def other_operations(model: ModelConfig) -> int:
    """Of all that is no matrix product."""
    maps = model.layers * model.heads * model.window**2
    rows = model.layers * model.window * model.width
    return OPERATIONS_PER_MAP_ELEMENT * maps + OPERATIONS_PER_ROW_ELEMENT * rows


def moved_bytes(model: ModelConfig, precision: Precision, batch: int) -> float:
    """Per window, if every product reads its operands and writes its result once, and weights serve a whole batch.

    What is no matrix product is taken to happen in passing, as engines fuse it.
    """
    total = 0.0
    for product in products(model):
        size = {"fp32": 4, "fp16": 2, "bf16": 2, "int8": 1 if product.can_be_int8 else 4}[precision]
        total += size * (product.activations + product.weights / batch)
    return total
