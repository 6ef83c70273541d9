"""What to offload, without a solver: as much as hides behind compute, in two orders."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from lowtide.engine.offload.host_space import Link
from lowtide.engine.offload.offloadable import offloadable_buffers
from lowtide.engine.recompute.floor import first_and_last_use
from lowtide.engine.recompute.program import Execution, Program

SHARES = (1.0, 0.75, 0.5, 0.3, 0.15)
"""Parts of the streams to fill; what hides in theory may wait in practice."""


def choices(
    program: Program, alone: Execution, untouched: Execution, link: Link, room_bytes: int
) -> Iterator[NDArray[np.bool_]]:
    """Yield masks over buffers: what to offload. O(n log n) each.

    Only buffers that are idle at the peak of the untouched program are chosen, in two orders. One takes first what
    costs most per byte to make again. The other starts with what costs at least as much per byte as anything that runs
    again in the plan `alone`; of these the earliest come first, since their transfers have most time. Each order is
    followed until a share of the streams is full, or `room_bytes` on the host are.
    """
    idle = idle_at_peak(program, untouched)
    if not len(idle):
        return
    graph, seconds = program.problem.graph, program.cost[program.order]
    peak = int(untouched.stages[int(untouched.live.argmax())])
    hidden_bytes = min(
        link.out_bytes_per_s * float(seconds[: peak + 1].sum()), link.back_bytes_per_s * float(seconds[peak:].sum())
    )
    first, _ = first_and_last_use(program)
    per_byte = program.cost[graph.structure.producers[idle]] / graph.sizes[idle]
    reruns = alone.runs[program.places[alone.runs] != alone.stages]
    dearest = _dearest(program, reruns)
    dear_first = idle[np.lexsort((idle, -per_byte))]
    early_first = idle[np.lexsort((idle, first[idle], per_byte < dearest))]
    for order in (early_first, dear_first):
        total = np.cumsum(graph.sizes[order])
        for share in SHARES:
            offloaded = np.zeros(graph.n_buffers, np.bool_)
            offloaded[order[total <= min(share * hidden_bytes, room_bytes)]] = True
            yield offloaded
    for order in (early_first, dear_first):
        offloaded = np.zeros(graph.n_buffers, np.bool_)
        offloaded[order[np.cumsum(graph.sizes[order]) <= room_bytes]] = True
        yield offloaded


def idle_at_peak(program: Program, untouched: Execution) -> NDArray[np.int64]:
    """Return the offloadable buffers that the untouched program holds at its peak without using them."""
    graph = program.problem.graph
    if not graph.n_ops:
        return np.zeros(0, np.int64)
    peak = int(untouched.stages[int(untouched.live.argmax())])
    first, last = first_and_last_use(program)
    idle = offloadable_buffers(program) & (first < peak) & (last > peak)
    idle[graph.structure.touches[int(program.order[peak])]] = False
    return np.flatnonzero(idle)


def _dearest(program: Program, reruns: NDArray[np.int32]) -> float:
    """Return the most that anything that runs again costs per byte it allocates."""
    graph = program.problem.graph
    dearest = 0.0
    for op in np.unique(reruns).tolist():
        size = int(program.counted_sizes[graph.structure.allocates[op]].sum())
        if size:
            dearest = max(dearest, float(program.cost[op]) / size)
    return dearest
