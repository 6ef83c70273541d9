"""Memory that products of matrices take for themselves, as measured for PyTorch 2.13 on x86."""

from typing import Any

import torch

from lowtide.frameworks.torch.internals.runtime import multiplies_tiles
from lowtide.frameworks.torch.internals.tensors import is_dense
from lowtide.frameworks.torch.reading.tensor_forms import bytes_of

HALF_TYPES = (torch.bfloat16, torch.float16)
_FACTORS = (("mat1", "mat2"), ("batch1", "batch2"), ("self", "mat2"))
"""How the factors are called: by sums, by sums of batches, by plain products."""
_MOST = 160 * 2**10
"""What oneDNN takes at most for a product in half precision where it multiplies no tiles."""
_MOST_PACKED, _MOST_FOR_FEW_ROWS = 1200 * 2**10, 1472 * 2**10
"""What it packs at most of a factor into tiles, for many rows and for few."""
_MOST_OF_COLUMNS, _MOST_IN_FLOAT16 = 842 * 2**10, 2336 * 2**10
"""The same where the columns of the other are contiguous, and in float16."""
_ROWS, _COLUMNS = 256, 64
"""How many rows, and columns, it packs at once."""
_MOST_ROWS, _FILLED_UP = 1024, 32
"""Of short sums so many rows are packed as well; all sums are filled up to a multiple of some numbers."""
_LONG_SUMS = 2048
"""Sums of more numbers are made in parts, which are kept in single precision where there are as many rows as that."""
_ALIGNED = 40 * 2**10
_MOST_LAST = 64 * 2**10
"""What it takes at most to fill up the ends of rows."""
_SMALL = 16**3
"""PyTorch gives no product of so few multiplications to oneDNN."""


def matrix_product(given: dict[str, Any], result: torch.Tensor) -> int:
    """BLAS takes a matrix whose rows or columns are contiguous; any other is copied, a batch one by one.

    oneDNN, which multiplies half-precision batches, takes no repeated matrices either and copies the whole batch.
    """
    copied, touched = 0, bytes_of(result)
    for name in ("self", "mat1", "mat2", "batch1", "batch2"):
        matrix = given.get(name)
        if not isinstance(matrix, torch.Tensor) or matrix.dim() < 2:
            continue
        touched += bytes_of(matrix)
        if matrix.dim() == 3 and matrix.dtype in HALF_TYPES and not is_dense(matrix):
            copied += bytes_of(matrix)
        elif 1 not in matrix.stride()[-2:]:
            copied += bytes_of(matrix) // (matrix.shape[0] if matrix.dim() == 3 else 1)
    if result.dtype not in HALF_TYPES:
        return copied
    left, right = next((given[one], given[other]) for one, other in _FACTORS if one in given and other in given)
    is_small = left.shape[-2] * left.shape[-1] * right.shape[-1] <= _SMALL
    return copied + (min(3 * touched, _MOST) if is_small or not multiplies_tiles() else _in_tiles(left, right))


def _in_tiles(left: torch.Tensor, right: torch.Tensor) -> int:
    """Return at least what a product takes of matrices, or of one pair of a batch, that are packed into tiles."""
    rows = left.shape[-2]
    inner = -(-left.shape[-1] // _FILLED_UP) * _FILLED_UP
    columns = -(-right.shape[-1] // _COLUMNS) * _COLUMNS
    at_once = min(-(-rows // _COLUMNS) * _COLUMNS, _ROWS)
    if left.dtype == torch.float16:
        return min(8 * inner * at_once + _MOST, _MOST_IN_FLOAT16)
    sums = 4 * rows * columns if inner > _LONG_SUMS and rows >= _ROWS else 0
    packed = min(2 * inner * columns, _MOST_FOR_FEW_ROWS if rows < _COLUMNS else _MOST_PACKED)
    if inner < _COLUMNS:
        packed += 2 * inner * min(rows, _MOST_ROWS)
    elif _has_columns(right) and rows <= _COLUMNS:
        packed = min(packed, _COLUMNS * (2 * inner + rows))
    if _has_columns(left) and inner >= _COLUMNS:
        packed = min(2 * inner * (2 * _COLUMNS + at_once), _MOST_OF_COLUMNS)
    last = min(_COLUMNS * inner, _MOST_LAST) if inner > left.shape[-1] else 0
    return packed + last + sums + _ALIGNED


def _has_columns(matrix: torch.Tensor) -> bool:
    """Tell whether the columns of a matrix are contiguous, and its rows are not."""
    return matrix.stride()[-2] == 1 != matrix.stride()[-1]
