"""How many rows may be multiplied by a matrix at once so that each has its product, to the last bit, whatever the rest.

A BLAS works through a matrix in tiles. Some kernels have tiles of several sizes, which add up in different orders, so
that a product depends on where its row stands: OpenBLAS on a Zen 5 takes 16 rows as 6 + 6 + 4. What holds on this
machine is tried, since the answer is the processor's and that of the build of numpy.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]

SIZES = (8, 4, 2, 1)
"""More rows are hardly faster, and may be shared out among threads, of which other processes have more or fewer."""
TRIED_ROWS = 16
"""One row alone may have the same sums in any order."""


def block_rows(matrices: Sequence[Floats]) -> int:
    """The largest of `SIZES` for which equal rows have equal products with each of the matrices (R,C)."""
    return next(size for size in SIZES if size == 1 or all(_are_alike(size, matrix) for matrix in matrices))


def _are_alike(size: int, matrix: Floats) -> bool:
    row = np.random.default_rng(0).standard_normal((TRIED_ROWS, 1, len(matrix)), np.float32)
    products = np.repeat(row, size, axis=1) @ matrix
    return bool((products == products[:, :1]).all())
