"""A program at another size, such as a larger batch."""

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from math import lcm

import numpy as np
from numpy.typing import NDArray

from lowtide.engine.graph.graph import Graph

N_SAMPLES = 3
"""Byte counts are quadratic in the batch, or in the length of attention scores."""


def resized(samples: Sequence[tuple[int, Graph]], size: int) -> Graph | None:
    """Return a program's graph at a size, from `N_SAMPLES` pairs of other sizes and their graphs.

    Byte counts and work are the quadratics through the samples. Returns None if the samples differ in more than that,
    or if a byte count would be no natural number.
    """
    places, graphs = [place for place, _ in samples], [graph for _, graph in samples]
    first = graphs[0]
    if not all(have_equal_structure(first, graph) for graph in graphs[1:]):
        return None
    weights = [_weight(place, [each for each in places if each != place], size) for place in places]
    sizes = _combined([graph.sizes for graph in graphs], weights)
    scratch = _combined([graph.scratch for graph in graphs], weights)
    if sizes is None or scratch is None:
        return None

    def work(columns: Sequence[NDArray[np.float64]]) -> NDArray[np.float64]:
        total = sum((column * float(weight) for column, weight in zip(columns, weights, strict=True)), np.zeros(1))
        return np.maximum(np.broadcast_to(total, columns[0].shape), 0.0)

    return replace(
        first,
        sizes=sizes,
        scratch=scratch,
        cost=work([graph.cost for graph in graphs]),
        flops=work([graph.flops for graph in graphs]),
        traffic=work([graph.traffic for graph in graphs]),
    )


def have_equal_structure(one: Graph, other: Graph) -> bool:
    """Return whether graphs without callees have the same ops on the same buffers, of any size."""
    if (one.n_ops, one.n_buffers, one.spaces) != (other.n_ops, other.n_buffers, other.spaces):
        return False
    if one.subgraphs or other.subgraphs or list(one.op_kinds) != list(other.op_kinds):
        return False
    if not np.array_equal(one.lifetimes, other.lifetimes) or not np.array_equal(one.buffer_spaces, other.buffer_spaces):
        return False
    columns = ("reads", "writes", "mutates", "after", "in_place")
    return all(getattr(one, name).is_equal_to(getattr(other, name)) for name in columns)


def _weight(place: int, others: Sequence[int], size: int) -> Fraction:
    weight = Fraction(1)
    for other in others:
        weight *= Fraction(size - other, place - other)
    return weight


def _combined(columns: Sequence[NDArray[np.int64]], weights: Sequence[Fraction]) -> NDArray[np.int64] | None:
    divisor = lcm(*(weight.denominator for weight in weights))
    total = np.zeros(len(columns[0]), object)
    for column, weight in zip(columns, weights, strict=True):
        total += column.astype(object) * int(weight * divisor)
    if any(each < 0 or each % divisor for each in total):
        return None
    return (total // divisor).astype(np.int64)
