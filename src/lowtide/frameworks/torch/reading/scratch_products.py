"""Scratch memory of matrix products and attention."""

import os
from collections.abc import Callable
from typing import Any

import torch

from lowtide.frameworks.torch.internals.runtime import multiplies_bfloat16, multiplies_tiles, onednn_computes
from lowtide.frameworks.torch.internals.tensors import bytes_of, is_dense
from lowtide.frameworks.torch.reading.effects import Arguments
from lowtide.frameworks.torch.reading.workspaces import memory_of_call

_KIB = 2**10
HALF_TYPES = (torch.bfloat16, torch.float16)

_FACTORS = (("mat1", "mat2"), ("batch1", "batch2"), ("self", "mat2"))
_UNPACKED = 160 * _KIB
"""Maximum in oneDNN without tiles."""
_PACKED, _PACKED_FOR_FEW_ROWS = 1200 * _KIB, 1472 * _KIB
"""Maxima of a packed factor."""
_PACKED_COLUMNS, _PACKED_FLOAT16 = 842 * _KIB, 2336 * _KIB
"""Maxima with contiguous columns of the other factor, and in float16."""
_ROWS, _COLUMNS = 256, 64
"""Rows and columns packed at once."""
_ROWS_OF_SHORT_SUMS, _SUM_MULTIPLE = 1024, 32
"""Most rows also packed for short sums; all sums are padded to this multiple."""
_LONG_SUMS = 2048
"""Longer sums keep partial sums in single precision."""
_BUFFERS = 40 * _KIB
_PADDED_ROW_ENDS = 64 * _KIB
_ACCUMULATOR_ENDS = 256
"""Padding of the float32 sum on processors without bfloat16 products."""
_SMALL = 16**3
"""PyTorch itself computes products this small."""

_QUERIES_PER_BLOCK = ((768, 256), (192, 64), (0, 32))
"""Minimum number of queries, and queries per block."""
_KEYS_PER_BLOCK = 512
_MIN_WIDTH = 32
_MIN_PACKED = 64
"""Fewer queries or keys are not packed."""
_HALF_BUFFERS = 52 * _KIB
"""Maximum for half-precision blocks."""

_WORKSPACES = (1024 * _KIB, 32768 * _KIB)
"""Of cuBLASLt in PyTorch 2.11, up to and above compute capability 8."""


def matrix_product(name: str) -> Callable[[Arguments, Any], int]:
    """Return the rule of a product on the CPU.

    BLAS copies matrices without contiguous rows or columns, in a batch one at a time. In half precision, oneDNN copies
    the whole batch unless it is dense. Its other needs are measured in small products, else bounded.
    """
    product: Any = getattr(torch.ops.aten, name).default
    return lambda given, result: _product(product, given, result)


def _product(product: Any, given: Arguments, result: torch.Tensor) -> int:
    if result.dtype not in HALF_TYPES or not onednn_computes(result.dtype):
        return _copies(given)
    left, right = next((given[one], given[other]) for one, other in _FACTORS if one in given and other in given)
    measured = memory_of_call(product, given, result.numel() * left.shape[-1])
    return measured.scratch_bytes if measured else _copies(given) + _half_product(given, left, right, result)


def _copies(given: Arguments) -> int:
    copied = 0
    for matrix in _matrices(given):
        if matrix.dim() == 3 and matrix.dtype in HALF_TYPES and not is_dense(matrix):
            copied += bytes_of(matrix)
        elif 1 not in matrix.stride()[-2:]:
            copied += bytes_of(matrix) // (matrix.shape[0] if matrix.dim() == 3 else 1)
    return copied


def _matrices(given: Arguments) -> list[torch.Tensor]:
    operands = (given.get(name) for name in ("self", "mat1", "mat2", "batch1", "batch2"))
    return [each for each in operands if isinstance(each, torch.Tensor) and each.dim() > 1]


def _half_product(given: Arguments, left: torch.Tensor, right: torch.Tensor, result: torch.Tensor) -> int:
    summed = 2 * bytes_of(result) + _ACCUMULATOR_ENDS
    found = summed if result.dtype == torch.bfloat16 and not multiplies_bfloat16() else 0
    if left.shape[-2] * left.shape[-1] * right.shape[-1] > _SMALL and multiplies_tiles():
        return found + _in_tiles(left, right)
    return found + min(3 * (bytes_of(result) + sum(map(bytes_of, _matrices(given)))), _UNPACKED)


def _in_tiles(left: torch.Tensor, right: torch.Tensor) -> int:
    rows = left.shape[-2]
    inner = -(-left.shape[-1] // _SUM_MULTIPLE) * _SUM_MULTIPLE
    columns = -(-right.shape[-1] // _COLUMNS) * _COLUMNS
    at_once = min(-(-rows // _COLUMNS) * _COLUMNS, _ROWS)
    if left.dtype == torch.float16:
        return min(8 * inner * at_once + _UNPACKED, _PACKED_FLOAT16)
    sums = 4 * rows * columns if inner > _LONG_SUMS and rows >= _ROWS else 0
    packed = min(2 * inner * columns, _PACKED_FOR_FEW_ROWS if rows < _COLUMNS else _PACKED)
    if inner < _COLUMNS:
        packed += 2 * inner * min(rows, _ROWS_OF_SHORT_SUMS)
    elif _has_columns(right) and rows <= _COLUMNS:
        packed = min(packed, _COLUMNS * (2 * inner + rows))
    if _has_columns(left) and inner >= _COLUMNS:
        packed = min(2 * inner * (2 * _COLUMNS + at_once), _PACKED_COLUMNS)
    row_ends = min(_COLUMNS * inner, _PADDED_ROW_ENDS) if inner > left.shape[-1] else 0
    return packed + row_ends + sums + _BUFFERS


def _has_columns(matrix: torch.Tensor) -> bool:
    return matrix.stride()[-2] == 1 != matrix.stride()[-1]


def cuda_product(given: Arguments) -> int:
    """Return the workspace of cuBLASLt for a product with a bias per row."""
    bias = given["self"]
    if not isinstance(bias, torch.Tensor) or (bias.dim() > 1 and bias.stride(0) != 0):
        return 0
    chosen = os.environ.get("CUBLASLT_WORKSPACE_SIZE", "")
    if chosen.isdecimal():
        return int(chosen) * _KIB
    is_recent = not torch.cuda.is_available() or torch.cuda.get_device_capability(bias.device)[0] > 8
    return _WORKSPACES[is_recent]


def attention(given: Arguments, _: Any) -> int:
    """Count a block of scores, results, and two numbers per query."""
    query = given["query"]
    queries, keys = _block(query, given["key"])
    numbers = queries * (keys + 2 + query.shape[-1])
    found = numbers * _working_size(query) + (queries * keys * query.element_size() if _is_half(query) else 0)
    return found + _packed(query, given["key"], queries)


def attention_backward(given: Arguments, _: Any) -> int:
    """Count two blocks of scores, and a copy."""
    query, width = given["query"], given["query"].shape[-1]
    queries, keys = _block(query, given["key"])
    found = queries * (1 + 2 * keys) * _working_size(query)
    if _is_half(query):
        found += 2 * queries * keys * query.element_size()
    if _is_half(query) and onednn_computes(query.dtype):
        found += 2 * (queries + keys) * max(width, _MIN_WIDTH) * _working_size(query) + _HALF_BUFFERS
    operands = (given[name] for name in ("grad_out", "query", "key", "value", "out"))
    if not all(operand.transpose(1, 2).is_contiguous() for operand in operands):
        found += bytes_of(query)
    return found


def _packed(query: torch.Tensor, key: torch.Tensor, queries: int) -> int:
    length, width = key.shape[2], query.shape[-1]
    if query.dtype != torch.bfloat16 or min(query.shape[2], length) < _MIN_PACKED or not multiplies_tiles():
        return 0
    even, heads = width + width % 2, key.shape[0] * key.shape[1]
    packed = heads * (length + length % 2) * (even + width)
    in_work = min(_KEYS_PER_BLOCK, length) * width + (queries * even if width % 2 else 0)
    return (packed + in_work) * query.element_size()


def _block(query: torch.Tensor, key: torch.Tensor) -> tuple[int, int]:
    length = query.shape[2]
    queries = next(size for least, size in _QUERIES_PER_BLOCK if length >= least)
    return min(queries, length), min(_KEYS_PER_BLOCK, key.shape[2])


def _is_half(query: torch.Tensor) -> bool:
    return query.element_size() < torch.float32.itemsize


def _working_size(query: torch.Tensor) -> int:
    return max(query.element_size(), torch.float32.itemsize)
