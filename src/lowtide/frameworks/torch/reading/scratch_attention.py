"""What attention takes for itself on the CPU: blocks of scores, by the sizes that PyTorch's kernel cuts them into."""

from typing import Any

import torch

from lowtide.frameworks.torch.internals.runtime import multiplies_tiles
from lowtide.frameworks.torch.reading.tensor_forms import bytes_of

Arguments = dict[str, Any]

_QUERIES_PER_BLOCK = ((768, 256), (192, 64), (0, 32))
"""From so many queries on, so many at once."""
_KEYS_PER_BLOCK = 512
_LEAST_WIDTH = 32
_FEWEST_PACKED = 64
"""Fewer queries or keys are multiplied as they are."""
_HALF_BUFFERS = 52 * 2**10
"""Beside that, products of half-precision blocks take up to so much."""


def attention(given: Arguments, _: Any) -> int:
    """Return the scratch of attention: on one thread a block of scores, its results and two numbers a query."""
    query = given["query"]
    queries, keys = _block(query, given["key"])
    numbers = queries * (keys + 2 + query.shape[-1])
    found = numbers * _working_size(query) + (queries * keys * query.element_size() if _is_half(query) else 0)
    return found + _packed(query, given["key"], queries)


def attention_backward(given: Arguments, _: Any) -> int:
    """Return the scratch of attention's gradients: two blocks of scores, and a copy where strides do not suit."""
    query, width = given["query"], given["query"].shape[-1]
    queries, keys = _block(query, given["key"])
    found = queries * (1 + 2 * keys) * _working_size(query)
    if _is_half(query):
        found += 2 * queries * keys * query.element_size() + 2 * (queries + keys) * max(
            width, _LEAST_WIDTH
        ) * _working_size(query)
        found += _HALF_BUFFERS
    operands = (given[name] for name in ("grad_out", "query", "key", "value", "out"))
    if not all(operand.transpose(1, 2).is_contiguous() for operand in operands):
        found += bytes_of(query)
    return found


def _packed(query: torch.Tensor, key: torch.Tensor, queries: int) -> int:
    """Return the bytes of keys and values in the order of tiles, where the processor multiplies those.

    Beside them lie one block of keys in work and, of odd width, one of queries.
    """
    length, width = key.shape[2], query.shape[-1]
    if query.dtype != torch.bfloat16 or min(query.shape[2], length) < _FEWEST_PACKED or not multiplies_tiles():
        return 0
    even, heads = width + width % 2, key.shape[0] * key.shape[1]
    packed = heads * (length + length % 2) * (even + width)
    in_work = min(_KEYS_PER_BLOCK, length) * width + (queries * even if width % 2 else 0)
    return (packed + in_work) * query.element_size()


def _block(query: torch.Tensor, key: torch.Tensor) -> tuple[int, int]:
    """Return how many queries and keys make one block."""
    length = query.shape[2]
    queries = next(size for least, size in _QUERIES_PER_BLOCK if length >= least)
    return min(queries, length), min(_KEYS_PER_BLOCK, key.shape[2])


def _is_half(query: torch.Tensor) -> bool:
    return query.element_size() < torch.float32.itemsize


def _working_size(query: torch.Tensor) -> int:
    return max(query.element_size(), torch.float32.itemsize)
