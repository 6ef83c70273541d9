"""What TensorFlow does with a graph that nobody orders: a simulation of its executor with one thread."""

from collections import deque
from collections.abc import Iterable, Sequence

import numpy as np

from lowtide.engine.analysis import Problem, simulate
from lowtide.engine.graph import Graph
from lowtide.engine.plan import Plan
from lowtide.engine.schedule.candidate import plan_of_order
from lowtide.frameworks.tensorflow.operators.kinds import INLINE
from lowtide.frameworks.tensorflow.reading.body import NodeBody
from lowtide.frameworks.tensorflow.reading.translation import TensorflowTranslation

WORTH = 0.95
"""The share of what the executor needs by this simulation below which an order is worth its control edges: real runs
on one thread were within 4 % of the simulation on networks of six kinds."""


def executor_plan(translation: TensorflowTranslation) -> Plan:
    """Return a graph's plan in the order in which TensorFlow's executor starts its nodes, with one thread for all.

    Kernels write over what they may, as in every plan; functions run as they stand.

    A node that is ready and cheap by its kernel runs at once, in turn; of those that are not, the last one to become
    ready goes first. Real runs differ a little: which of several readers is told first is not fixed, and kernels that
    prove to be fast count as cheap later on. With more threads more is live at once. Source: ExecutorState::
    ScheduleReady in executor.cc of TensorFlow. Complexity: O(n + e).
    """
    body, graph = translation.body, translation.graph
    fed = {place for place, _ in translation.fed}
    needed = body.ancestors([*(place for place, _ in translation.results), *translation.nodes], fed)
    op_of = {place: op for op, place in enumerate(translation.nodes)}
    started = _started(body, needed, fed)
    order = np.asarray([op_of[place] for place in started if place in op_of], np.int32)
    return plan_of_order(Problem(graph, {}), order)


def is_worth_its_edges(graph: Graph, plan: Plan, executor: Plan, allowed_bytes: int | None = None) -> bool:
    """Return whether a plan does what TensorFlow would not do of itself.

    It does where it runs nodes again, where it needs clearly less than the executor by its simulation, and where it
    keeps a budget of the first memory space that the executor does not keep.
    """
    if len(plan.order()) > graph.n_ops:
        return True
    space = graph.spaces[0].name
    own, planned = (simulate(graph, each).peak_bytes for each in (executor, plan))
    breaks_budget = allowed_bytes is not None and planned[space] <= allowed_bytes < own[space]
    return breaks_budget or any(planned[name] < WORTH * own[name] for name in planned)


def _started(body: NodeBody, needed: Sequence[bool], fed: Iterable[int]) -> list[int]:
    without_inputs = set(fed)
    left = [0] * len(body.nodes)
    readers: list[list[int]] = [[] for _ in body.nodes]
    waiting: deque[int] = deque()
    for place in range(len(body.nodes)):
        if not needed[place]:
            continue
        sources = () if place in without_inputs else dict.fromkeys(body.neighbors(place))
        left[place] = len(sources)
        for source in sources:
            readers[source].append(place)
        if not sources:
            waiting.append(place)
    inline: deque[int] = deque()
    started: list[int] = []
    while waiting or inline:
        place = inline.popleft() if inline else waiting.popleft()
        started.append(place)
        last: int | None = None
        for reader in readers[place]:
            left[reader] -= 1
            if left[reader]:
                continue
            if body.nodes[reader].op in INLINE:
                inline.append(reader)
                continue
            if last is not None:
                waiting.appendleft(last)
            last = reader
        if last is not None:
            inline.append(last) if not inline else waiting.appendleft(last)
    return started
