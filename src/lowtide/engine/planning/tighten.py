"""A smaller arena for a plan with recomputation."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from lowtide.core.effort import EffortName
from lowtide.core.progress import Report
from lowtide.engine.analysis.footprint import simulate
from lowtide.engine.graph.execution import is_valid_order
from lowtide.engine.packing import Packing, pack_plan
from lowtide.engine.plan import Plan, StepKind
from lowtide.engine.planning.draft import Draft
from lowtide.engine.recompute.program import OrderedProgram
from lowtide.engine.recompute.unrolled import first_runs, unroll

_WORTH = 100
_MOST_RUNS = 2_000
_MOST_PACKINGS = {"fast": 30, "balanced": 100, "max": 1_000}
Ints = NDArray[np.int32]


def tighten(draft: Draft, packing: Packing, effort: EffortName, report: Report) -> tuple[Plan, Packing]:
    """Return a plan with the same runs, peak and cost and the smallest arena found, with its packing.

    First runs keep their order, so cost bounds stay valid. Source: first-improvement local search. Complexity: one
    packing per try, limited by the effort.
    """
    plan, peak = draft.plan, sum(draft.plan.peak_bytes.values())
    runs = plan.targets[plan.kinds == StepKind.RUN].astype(np.int32)
    first = first_runs(runs.tolist())
    copies = ~np.isin(plan.kinds, (StepKind.RUN, StepKind.FREE))
    may_move = len(first) < len(runs) <= _MOST_RUNS and not copies.any()
    if not may_move or packing.total_bytes - peak <= peak // _WORTH:
        return plan, packing
    report("moving what runs again")
    program = OrderedProgram(draft.problem, first, draft.prices.seconds)
    tries, moved = _MOST_PACKINGS[effort], True
    while moved and packing.total_bytes > peak:
        moved = False
        for other in _moved_reruns(draft, runs):
            execution = program.replay(other)
            found = program.plan(execution)
            found = replace(found, callees=plan.callees, peak_bytes=simulate(draft.graph, found).peak_bytes)
            if dict(found.peak_bytes) != dict(plan.peak_bytes) or not np.array_equal(execution.runs, other):
                continue
            if tries == 0:
                return plan, packing
            tries -= 1
            tighter = pack_plan(draft.graph, found, draft.problem.transient, effort=effort)
            if tighter.interrupted:
                raise KeyboardInterrupt
            if tighter.total_bytes < packing.total_bytes:
                plan, packing, runs, moved = found, tighter, other, True
                break
    return plan, packing


def _moved_reruns(draft: Draft, runs: Ints) -> Iterator[Ints]:
    graph, first = unroll(draft.problem, runs.tolist()).graph, first_runs(runs.tolist())
    seen: set[int] = set()
    for position, op in enumerate(runs.tolist()):
        if op not in seen:
            seen.add(op)
            continue
        for step in (1, -1):
            order = np.arange(len(runs), dtype=np.int32)
            place = position
            while 0 <= place + step < len(runs):
                swapped = order.copy()
                swapped[[place, place + step]] = swapped[[place + step, place]]
                if not is_valid_order(graph, swapped):
                    break
                order, place = swapped, place + step
            other = runs[order]
            if place != position and np.array_equal(first_runs(other.tolist()), first):
                yield other
