"""Bytes an op needs only while it runs: its own scratch and the peak inside what it calls."""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from lowtide.engine.graph.graph import Graph

RESULT_IS_BODY_ROOT = frozenset({"while", "call", "conditional"})
"""Op kinds whose result is the root of the body they call, so that its bytes are in the callee's peak already."""


def transient_bytes(graph: Graph, callee_peaks: Mapping[str, Mapping[str, int]]) -> NDArray[np.int64]:
    """Return the bytes that every op needs beside buffers while it runs, shape (ops, spaces).

    `callee_peaks` holds, by callee, its own peak per space name. Of several callees the largest counts. Where the op is
    a while, call or conditional, the callee's peak contains the op's result, so the result is taken off: what the op
    allocates, and what it writes in place, as a loop does with its state. What is persistent is in neither's peak.
    """
    result = np.zeros((graph.n_ops, len(graph.spaces)), np.int64)
    result[np.arange(graph.n_ops), graph.scratch_spaces] = graph.scratch
    spaces = [space.name for space in graph.spaces]
    for op, callees in enumerate(graph.callees):
        if not callees:
            continue
        inner = np.array([max(callee_peaks[name].get(space, 0) for name in callees) for space in spaces], np.int64)
        if graph.op_kinds[op] in RESULT_IS_BODY_ROOT:
            for buffer in {*graph.structure.allocates[op].tolist(), *graph.mutates[op].tolist()}:
                if not graph.persistent[buffer]:
                    inner[graph.buffer_spaces[buffer]] -= graph.sizes[buffer]
        result[op] += np.maximum(inner, 0)
    return result
