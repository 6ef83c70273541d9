"""What a plan's copies move, and what of that time compute does not notice."""

from dataclasses import dataclass

from lowtide.engine.costs import Prices
from lowtide.engine.graph import Graph
from lowtide.engine.plan import Plan, StepKind
from lowtide.engine.timeline.play import play_timeline


@dataclass(frozen=True, slots=True, kw_only=True)
class Transfers:
    """A plan's copies in figures; all 0 for a plan without any."""

    bytes_out: int = 0
    """What leaves for another memory space."""
    stall_seconds: float = 0.0
    """How long compute waits for copies."""
    hidden_seconds: float = 0.0
    """Transfer time during which compute is busy too."""


def transfers_of(graph: Graph, plan: Plan, prices: Prices) -> Transfers:
    """Return what a plan copies, by its timeline. O(steps)."""
    out = plan.kinds == StepKind.COPY_OUT
    if not (out.any() or (plan.kinds == StepKind.COPY_IN).any()):
        return Transfers()
    timeline = play_timeline(graph, plan, prices)
    return Transfers(
        bytes_out=int(graph.sizes[plan.targets[out]].sum()),
        stall_seconds=timeline.stall_seconds,
        hidden_seconds=timeline.hidden_seconds,
    )
