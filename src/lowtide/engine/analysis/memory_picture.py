"""The picture of a program's memory."""

from lowtide.core.index_spaces import SpaceId
from lowtide.core.memory_picture import MemoryPicture
from lowtide.core.units import format_bytes
from lowtide.engine.analysis.folding import Fold, fold
from lowtide.engine.analysis.holders_at_peak import Holder, holders_at_peak
from lowtide.engine.analysis.memory_over_time import memory_over_time
from lowtide.engine.graph import Graph
from lowtide.engine.plan import Plan

_MOST_NAMED = 3


def memory_picture(
    graph: Graph,
    plan: Plan | None = None,
    *,
    unmodified: Graph | None = None,
    budget_bytes: int | None = None,
    space: SpaceId = 0,
) -> MemoryPicture:
    """Return a space's picture. `unmodified` is the program before the plan, by default the graph."""
    first = unmodified or graph
    before = memory_over_time(first, Plan.baseline(first), space, 1).live
    after = None if plan is None else memory_over_time(graph, plan, space, 1).live
    holders = holders_at_peak(graph, plan or Plan.baseline(graph))
    return MemoryPicture(
        name=graph.name,
        space=graph.spaces[space].name,
        before=before,
        after=after,
        budget_bytes=budget_bytes,
        largest=largest_names([holder for holder in holders if holder.space == graph.spaces[space].name]),
    )


def largest_names(holders: list[Holder]) -> tuple[str, ...]:
    """Return names and sizes of the largest tensors, with repeated layers folded."""
    return tuple(f"{_named(each)} {format_bytes(each.size_bytes)}" for each in fold(holders)[:_MOST_NAMED])


def _named(each: Fold[Holder]) -> str:
    module = (each.made_at or "").rpartition(" at ")[0]
    return f"{module} {each.label}" if module else each.label
