"""When ops end if each starts as soon as its inputs are there, on as many streams as it takes."""

from lowtide.engine.graph import Graph
from lowtide.frameworks.tensorflow.grappler.nodes import Nodes

_LEAST_SECONDS = 1e-9
"""Grappler counts in nanoseconds, and no op takes less than one."""


def earliest_completion_times(graph: Graph, nodes: Nodes) -> list[float]:
    """Return, per op, the length of the longest path that ends with it, in seconds. O(n + e)."""
    ends: list[float] = []
    for cost, inputs in zip(graph.cost.tolist(), nodes.inputs, strict=True):
        ends.append(max((ends[op] for op in inputs), default=0.0) + max(cost, _LEAST_SECONDS))
    return ends
