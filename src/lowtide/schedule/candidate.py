"""A plan that one scheduler made, and what making it took."""

import time
from dataclasses import dataclass

from lowtide.graph import Graph
from lowtide.plan import Plan
from lowtide.schedule.callees import plan_graph
from lowtide.schedule.compare_key import compare_key
from lowtide.schedule.table import scheduler


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """The plan of one scheduler for one graph."""

    scheduler: str
    plan: Plan
    key: tuple[int, int]
    """What candidates are compared by, less is better; see `compare_key`."""
    seconds: float


def make_candidate(name: str, graph: Graph, *, in_place: bool) -> Candidate:
    """Plan a graph and its callees with the scheduler of this name; raises UsageError for an unknown name."""
    chosen = scheduler(name)
    started = time.perf_counter()
    plan = plan_graph(graph, chosen, in_place=in_place)
    seconds = time.perf_counter() - started
    return Candidate(scheduler=name, plan=plan, key=compare_key(graph, plan.peak_bytes.values()), seconds=seconds)
