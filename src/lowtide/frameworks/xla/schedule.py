"""Write a plan's order, or find the best order."""

import heapq
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from graphlib import TopologicalSorter
from itertools import pairwise

from lowtide.core.effort import DEFAULT_EFFORT, EffortName
from lowtide.core.errors import PlanError, UnsupportedError
from lowtide.core.index_spaces import OpId
from lowtide.engine.plan import Plan, verify
from lowtide.engine.schedule import make_candidate
from lowtide.frameworks.xla.reading.computation import ReadComputation
from lowtide.frameworks.xla.reading.module import ReadModule
from lowtide.frameworks.xla.reading.ops import is_op
from lowtide.frameworks.xla.text.brackets import end_of_group
from lowtide.frameworks.xla.text.module import HloModule
from lowtide.frameworks.xla.text.order import marked_scheduled, reordered, verify_schedule, with_control_edges

RECORDED = ("xla-list", "xla-dfs", "xla-postorder")
_FRONTEND = re.compile(r"\bfrontend_attributes=(?=\{)")
_PEAK = re.compile(r'\blowtide_(\w+)_peak_bytes="(\d{1,19})"')
_NAME = re.compile(r"^(\s*HloModule\s+[^\s,]+(?:,\s*is_scheduled=true)?)", re.MULTILINE)


@dataclass(frozen=True, kw_only=True)
class ScheduledModule:
    """A module in the best order found."""

    module: HloModule
    """Marked as scheduled, with peaks in its header."""
    plan: Plan
    scheduler: str
    peaks: Mapping[str, int]
    """In the first memory space, by scheduler."""


def schedule(read: ReadModule, effort: EffortName = DEFAULT_EFFORT) -> ScheduledModule:
    """Return the module in the best order found.

    Candidates are the given order, XLA's list, depth-first and post-order schedules, and the search, with in-place
    pairs. The first of equal ones wins.
    """
    names = ("given", *RECORDED, "search")
    tried = [make_candidate(name, read.graph, in_place=True, effort=effort) for name in names]
    best = min(tried, key=lambda candidate: candidate.key)
    space = read.graph.spaces[0].name
    peaks = {candidate.scheduler: candidate.plan.peak_bytes[space] for candidate in tried}
    module = record_peaks(scheduled(read, best.plan), {name: peaks[name] for name in RECORDED})
    return ScheduledModule(module=module, plan=best.plan, scheduler=best.scheduler, peaks=peaks)


def record_peaks(module: HloModule, peaks: Mapping[str, int]) -> HloModule:
    """Return a module with peaks by scheduler in its header's frontend attributes."""
    entries = ",".join(f'lowtide_{name.replace("-", "_")}_peak_bytes="{peak}"' for name, peak in peaks.items())
    header = _without_peaks(module.header)
    found = _FRONTEND.search(header)
    if found is None:
        return replace(module, header=_NAME.sub(rf"\1, frontend_attributes={{{entries}}}", header, count=1))
    end = end_of_group(header, found.end())
    comma = "," if header[found.end() + 1 : end - 1].strip() else ""
    return replace(module, header=f"{header[: end - 1]}{comma}{entries}{header[end - 1 :]}")


def recorded_peaks(module: HloModule) -> dict[str, int]:
    """Return the recorded peaks, by scheduler."""
    text = module.attributes.get("frontend_attributes", "")
    return {name.replace("_", "-"): int(peak) for name, peak in _PEAK.findall(text)}


def scheduled(read: ReadModule, plan: Plan) -> HloModule:
    """Return the module in a plan's order, marked as scheduled.

    Instructions without work are placed as early as possible. Raises PlanError for a plan of another module,
    UnsupportedError for one that recomputes or copies.
    """
    orders = {
        name: instruction_order(read.computations[name], order) for name, order in _planned_orders(read, plan).items()
    }
    result = marked_scheduled(reordered(read.module, orders))
    verify_schedule(result, read.module)
    return result


def with_order_as_control_edges(read: ReadModule, plan: Plan) -> HloModule:
    """Return the module with control edges between successive ops of a plan, unscheduled; raises as `scheduled`."""
    edges: dict[str, dict[str, list[str]]] = {}
    for name, order in _planned_orders(read, plan).items():
        computation = read.computations[name]
        instructions = computation.points.computation.instructions
        for before, after in pairwise(order):
            instruction = instructions[computation.places[after]]
            previous = instructions[computation.places[before]].name
            if previous not in instruction.operands:
                edges.setdefault(name, {})[instruction.name] = [previous]
    ordered = marked_scheduled(scheduled(read, plan), scheduled=False)
    return with_control_edges(ordered, edges)


def instruction_order(read: ReadComputation, order: Sequence[OpId]) -> list[int]:
    """Return the positions of all instructions, with ops in this order."""
    computation = read.points.computation
    if list(order) == sorted(order):
        return list(range(len(computation.instructions)))
    sorter: TopologicalSorter[int] = TopologicalSorter()
    for place, instruction in enumerate(computation.instructions):
        before = (*instruction.operands, *instruction.control_predecessors)
        sorter.add(place, *(computation.positions[name] for name in before))
    sorter.prepare()
    result: list[int] = []
    idle: list[int] = []

    def append_idle() -> None:
        while True:
            for place in sorter.get_ready():
                if not is_op(computation.instructions[place]):
                    heapq.heappush(idle, place)
            if not idle:
                return
            result.append(heapq.heappop(idle))
            sorter.done(result[-1])

    append_idle()
    for op in order:
        result.append(read.places[op])
        sorter.done(result[-1])
        append_idle()
    return result


def _without_peaks(header: str) -> str:
    bare = re.sub(rf",?{_PEAK.pattern}", "", header)
    return bare.replace(", frontend_attributes={}", "") if bare != header else header


def _planned_orders(read: ReadModule, plan: Plan) -> dict[str, list[OpId]]:
    verify(read.graph, plan, check_capacity=False)
    plans: dict[str, Plan] = {read.module.entry.name: plan}
    waiting = [plan]
    while waiting:
        for name, inner in waiting.pop().callees.items():
            if plans.setdefault(name, inner) is inner:
                waiting.append(inner)
            elif list(plans[name].order()) != list(inner.order()):
                raise PlanError(f"the plan has two orders for computation {name!r}, whose text can have only one")
    orders = {name: list(range(computation.graph.n_ops)) for name, computation in read.computations.items()}
    for name, inner in plans.items():
        order = inner.order().tolist()
        if sorted(order) != list(range(read.computations[name].graph.n_ops)):
            raise UnsupportedError("HLO text cannot express the recomputation of this plan; write a plan (.plan.json)")
        orders[name] = order
    return orders
