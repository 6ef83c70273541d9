"""Plans back into HLO text: instructions in another order, computation by computation."""

import heapq
from collections.abc import Sequence
from itertools import pairwise

from lowtide.core.errors import PlanError, UnsupportedError
from lowtide.core.index_spaces import OpId
from lowtide.engine.plan import Plan, verify
from lowtide.frameworks.xla.reading.computation import ReadComputation
from lowtide.frameworks.xla.reading.module import ReadModule
from lowtide.frameworks.xla.reading.waiting import is_op
from lowtide.frameworks.xla.text.module import Computation, HloModule
from lowtide.frameworks.xla.text.write import marked_scheduled, reordered, with_control_edges
from lowtide.frameworks.xla.verify_schedule import verify_schedule


def scheduled(read: ReadModule, plan: Plan) -> HloModule:
    """Return the module in a plan's order, marked as scheduled.

    Computations for which the plan has no order keep theirs, and so do those that run within one kernel: fusions,
    reductions, sorts. Instructions that do not run (parameters, constants, elements of tuples, bitcasts) stand as early
    as they can. Raises PlanError for a plan that is wrong for this module, UnsupportedError for one that repeats or
    copies.
    """
    orders = {
        name: instruction_order(read.computations[name], order) for name, order in planned_orders(read, plan).items()
    }
    result = marked_scheduled(reordered(read.module, orders))
    verify_schedule(result, read.module)
    return result


def with_order_as_control_edges(read: ReadModule, plan: Plan) -> HloModule:
    """Return the module with an edge from each op to the next one of a plan's order, and not marked as scheduled.

    It is for who schedules the module again: no schedule that keeps the edges runs the ops in another order. Ops that
    read the one before need none. The errors are those of `scheduled`.
    """
    edges: dict[str, dict[str, list[str]]] = {}
    for name, order in planned_orders(read, plan).items():
        computation = read.computations[name]
        instructions = computation.points.computation.instructions
        for before, after in pairwise(order):
            instruction = instructions[computation.places[after]]
            previous = instructions[computation.places[before]].name
            if previous not in instruction.operands:
                edges.setdefault(name, {})[instruction.name] = [previous]
    ordered = marked_scheduled(scheduled(read, plan), scheduled=False)
    return with_control_edges(ordered, edges)


def planned_orders(read: ReadModule, plan: Plan) -> dict[str, list[OpId]]:
    """Return the order of every computation that runs as a program, by name: the plan's, or that of the text.

    The errors are those of `scheduled`.
    """
    verify(read.graph, plan, check_capacity=False)
    plans: dict[str, Plan] = {read.module.entry.name: plan}
    waiting = [plan]
    while waiting:
        for name, inner in waiting.pop().callees.items():
            if plans.setdefault(name, inner) is inner:
                waiting.append(inner)
            elif list(plans[name].order()) != list(inner.order()):
                raise PlanError(f"the plan has two orders for computation {name!r}, which has one place in the text")
    orders = {name: list(range(computation.graph.n_ops)) for name, computation in read.computations.items()}
    for name, inner in plans.items():
        order = inner.order().tolist()
        if sorted(order) != list(range(read.computations[name].graph.n_ops)):
            raise UnsupportedError("the plan runs some ops twice, which HLO text cannot say; write a plan (.plan.json)")
        orders[name] = order
    return orders


def instruction_order(read: ReadComputation, order: Sequence[OpId]) -> list[int]:
    """Return the places of all instructions of a computation so that its ops come in this order. O(n log n + e).

    An order that is the program's leaves all instructions where they are.
    """
    computation = read.points.computation
    if list(order) == sorted(order):
        return list(range(len(computation.instructions)))
    users, missing = _users(computation)
    ready = [place for place, count in enumerate(missing) if count == 0]
    idle = [place for place in ready if not is_op(computation.instructions[place])]
    result: list[int] = []

    def done(place: int) -> None:
        result.append(place)
        for user in users[place]:
            missing[user] -= 1
            if missing[user] == 0 and not is_op(computation.instructions[user]):
                heapq.heappush(idle, user)

    for op in order:
        while idle:
            done(heapq.heappop(idle))
        done(read.places[op])
    while idle:
        done(heapq.heappop(idle))
    return result


def _users(computation: Computation) -> tuple[list[list[int]], list[int]]:
    """Return, per instruction, those that must come after it, and how many must come before it."""
    users: list[list[int]] = [[] for _ in computation.instructions]
    missing: list[int] = []
    for place, instruction in enumerate(computation.instructions):
        before = {computation.positions[name] for name in (*instruction.operands, *instruction.control_predecessors)}
        missing.append(len(before))
        for other in before:
            users[other].append(place)
    return users, missing
