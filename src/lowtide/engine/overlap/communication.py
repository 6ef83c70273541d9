"""How long a plan's collectives take, and how much of that computation does not hide."""

from dataclasses import dataclass

from lowtide.engine.costs import Prices
from lowtide.engine.graph import Graph
from lowtide.engine.plan import Plan
from lowtide.engine.timeline import play_timeline


@dataclass(frozen=True, slots=True, kw_only=True)
class Communication:
    """A plan's collectives in seconds; all 0 for a plan without any."""

    seconds: float = 0.0
    """What all of them take, repeated ones included."""
    exposed_seconds: float = 0.0
    """How long computation stands still meanwhile."""


def communication_of(graph: Graph, plan: Plan, prices: Prices) -> Communication:
    """Return what a plan's collectives take on a stream of their own. O(steps + e)."""
    if not (graph.ranks > 1).any():
        return Communication()
    timeline = play_timeline(graph, plan, prices, collectives_apart=True)
    return Communication(seconds=timeline.collective_seconds, exposed_seconds=timeline.exposed_seconds)
