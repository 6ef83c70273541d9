"""Postpone copies of updated parameters, so that state for other updates does not queue behind them."""

from collections.abc import Collection

from lowtide.core.index_spaces import BufferId, OpId, StepIndex
from lowtide.engine.graph import PARAMETER_TO_DEVICE, Graph
from lowtide.engine.overlap.steps import AFTER, Steps
from lowtide.engine.plan import Plan, Run


def returning_ops(graph: Graph) -> frozenset[OpId]:
    """Return the ops that copy updated parameters to the device."""
    kinds = enumerate(graph.op_kinds) if graph.updates_on_host.any() else ()
    return frozenset(op for op, kind in kinds if kind == PARAMETER_TO_DEVICE)


def return_late(plan: Steps, returning: Collection[OpId]) -> Plan:
    """Return the plan with its `returning` ops last, in the order of the updates, if no step needs them.

    A stream copies in the order of the steps, and such a copy waits for its update. O(accesses).
    """
    last = len(plan.steps) - 1
    used_later: set[BufferId] = set()
    freed: dict[BufferId, StepIndex] = {}
    places: dict[StepIndex, tuple[StepIndex, int]] = {}
    for step in range(last, -1, -1):
        this = plan.steps[step]
        buffers = plan.buffers_of(this)
        if not isinstance(this, Run):
            freed[this.buffer] = step
            continue
        if this.op in returning and used_later.isdisjoint(buffers):
            moved = [step, *(freed[buffer] for buffer in buffers if buffer in freed)]
            places.update(dict.fromkeys(moved, (last, AFTER)))
            continue
        used_later.update(buffers)
    return plan.moved(places) if places else plan.plan
