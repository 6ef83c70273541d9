"""The order of TensorFlow's executor."""

from collections import deque
from collections.abc import Collection, Sequence

import numpy as np

from lowtide.engine.analysis import Problem, simulate
from lowtide.engine.graph import Graph
from lowtide.engine.plan import Plan
from lowtide.engine.schedule.candidate import plan_of_order
from lowtide.frameworks.tensorflow.operators import INLINE
from lowtide.frameworks.tensorflow.reading.body import NodeBody, sorter_of
from lowtide.frameworks.tensorflow.reading.translation import TensorflowTranslation

WORTH = 0.95
"""A plan is applied below this share of the executor's peak. Measured peaks were within 4 % of the simulation."""


def executor_plan(translation: TensorflowTranslation) -> Plan:
    """Return the executor's order on one thread as a plan. O(n + e).

    Source: ExecutorState::ScheduleReady.
    """
    body, graph = translation.body, translation.graph
    fed = {place for place, _ in translation.fed}
    needed = body.ancestors([*(place for place, _ in translation.results), *translation.nodes], fed)
    op_of = {place: op for op, place in enumerate(translation.nodes)}
    started = _started(body, needed, fed)
    order = np.asarray([op_of[place] for place in started if place in op_of], np.int32)
    return plan_of_order(Problem(graph, {}), order)


def is_worth_its_edges(graph: Graph, plan: Plan, executor: Plan, allowed_bytes: int | None = None) -> bool:
    """Return whether a plan recomputes, has a peak below `WORTH` times the executor's, or alone meets the budget."""
    if len(plan.order()) > graph.n_ops:
        return True
    space = graph.spaces[0].name
    own, planned = (simulate(graph, each).peak_bytes for each in (executor, plan))
    breaks_budget = allowed_bytes is not None and planned[space] <= allowed_bytes < own[space]
    return breaks_budget or any(planned[name] < WORTH * own[name] for name in planned)


def _started(body: NodeBody, needed: Sequence[bool], fed: Collection[int]) -> list[int]:
    sorter = sorter_of(body, needed, fed)
    sorter.prepare()
    waiting = deque(sorter.get_ready())
    inline: deque[int] = deque()
    started: list[int] = []
    while waiting or inline:
        place = inline.popleft() if inline else waiting.popleft()
        started.append(place)
        last: int | None = None
        sorter.done(place)
        for reader in sorter.get_ready():
            if body.nodes[reader].op in INLINE:
                inline.append(reader)
                continue
            if last is not None:
                waiting.appendleft(last)
            last = reader
        if last is not None:
            inline.append(last) if not inline else waiting.appendleft(last)
    return started
