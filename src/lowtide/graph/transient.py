"""Bytes an op needs only while it runs: its own scratch and the peak inside what it calls."""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from lowtide.graph.graph import Graph

RESULT_IS_BODY_ROOT = frozenset({"while", "call", "conditional"})
"""Op kinds whose result is the root of the body they call, so that its bytes are in the callee's peak already."""


def transient_bytes(graph: Graph, callee_peaks: Mapping[str, Mapping[str, int]]) -> NDArray[np.int64]:
    """Return bytes per op and memory space, shape (ops, spaces), that are needed beyond buffers while the op runs.

    `callee_peaks` holds, for every callee by name, its own peak per space name. The largest callee counts; for a
    while, call or conditional it replaces the op's result instead of adding to it.
    """
    result = np.zeros((graph.n_ops, len(graph.spaces)), np.int64)
    result[np.arange(graph.n_ops), graph.scratch_spaces] = graph.scratch
    spaces = [space.name for space in graph.spaces]
    for op, callees in enumerate(graph.callees):
        if not callees:
            continue
        inner = np.array([max(callee_peaks[name].get(space, 0) for name in callees) for space in spaces], np.int64)
        if graph.op_kinds[op] in RESULT_IS_BODY_ROOT:
            for buffer in graph.structure.allocates[op].tolist():
                inner[graph.buffer_spaces[buffer]] -= graph.sizes[buffer]
        result[op] += np.maximum(inner, 0)
    return result
