"""A plan as a picture: every residency a rectangle, steps from left to right, addresses upward."""

from lowtide.engine.graph import Graph
from lowtide.engine.packing import Buffers, Packed
from lowtide.engine.plan import Plan
from lowtide.reporting.export.packing_svg import packing_svg
from lowtide.reporting.export.placed import Placed, with_addresses


def plan_svg(graph: Graph, plan: Plan, space: int) -> bytes:
    """Return an SVG picture of a memory space; the line is the plan's lower bound. Scratch lies above the arena."""
    plan = with_addresses(graph, plan)
    placed = Placed.of(graph, plan, space)
    name = graph.spaces[space].name
    buffers = Buffers(placed.first + 1, placed.last + 1, placed.sizes, names=placed.names)
    drawn = Packed(
        offsets=placed.offsets,
        arena_bytes=plan.arena_bytes.get(name, placed.arena_bytes),
        lower_bound_bytes=plan.lower_bound_bytes.get(name, 0),
        status=plan.status,
        bound_holders=(),
        conflict=(),
        method="plan",
        work=0,
    )
    return packing_svg(f"{graph.name}, {name}", buffers, drawn, graph.spaces[space].capacity_bytes)
