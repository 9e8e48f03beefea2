"""A row has the same product with a matrix, wherever it stands in a block of the size that is found."""

import numpy as np
import pytest

from at_infer.models.row_products import SIZES, block_rows


@pytest.mark.parametrize("shape", [(50, 50), (50, 16), (25, 16), (50, 512), (25, 512), (7, 3), (1, 1)])
def test_a_row_has_the_same_product_wherever_it_stands(shape: tuple[int, int]) -> None:
    rng = np.random.default_rng(1)
    matrix = rng.standard_normal(shape, np.float32)
    size, row = block_rows([matrix]), rng.standard_normal(shape[0], np.float32)
    assert size in SIZES
    blocks = rng.standard_normal((size, size, shape[0]), np.float32)
    blocks[range(size), range(size)] = row
    found = (blocks @ matrix)[range(size), range(size)]
    np.testing.assert_array_equal(found, np.broadcast_to(found[0], found.shape))


class Tiled(np.ndarray):
    """A matrix in whose products a tile of six rows adds up in another order than the others."""

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, rows: np.ndarray, matrix: np.ndarray) -> np.ndarray:
        forth, back = rows @ np.asarray(matrix), rows[..., ::-1] @ np.asarray(matrix)[::-1]
        return np.concatenate([forth[..., :6, :], back[..., 6:, :]], axis=-2)


def test_tiles_of_other_sizes_are_found() -> None:
    matrix = np.random.default_rng(2).standard_normal((50, 512)).astype(np.float32)
    assert block_rows([matrix, matrix.view(Tiled)]) == min(4, block_rows([matrix]))
