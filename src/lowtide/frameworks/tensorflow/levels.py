"""Grappler's memory optimizer on TensorFlow nodes: its levels, improved or exact."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from lowtide.core.collection import without_collection
from lowtide.core.errors import UsageError, unknown
from lowtide.frameworks.tensorflow.graphs.node_def import NodeDef
from lowtide.frameworks.tensorflow.grappler.levels import LEVELS, RECOMPUTING, SWAPPING, LevelName
from lowtide.frameworks.tensorflow.grappler.recompute import DEFAULT_SCOPE, TAPE_SCOPE, is_in_scope
from lowtide.frameworks.tensorflow.passes import Passes, Situation
from lowtide.frameworks.tensorflow.reading.body import body_of_graph, refuse_v1
from lowtide.frameworks.tensorflow.reading.node_graph import estimated_seconds
from lowtide.frameworks.tensorflow.rewrites.memory_rewrites import SwappedInput

ORIGINAL = "original"
_LOWERED = 0.99
"""Estimates above this share of the estimate before count as unchanged."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """The nodes after a level, and its changes by name."""

    nodes: Sequence[NodeDef]
    recomputed: Sequence[str] = ()
    swapped: Sequence[SwappedInput] = ()
    accumulated: Sequence[str] = ()
    relaxed: Sequence[str] = ()
    """Assignments that do not need pinned memory."""
    before_bytes: Mapping[str, int] = field(default_factory=dict[str, int])
    """Grappler's estimate of the peak by device."""
    after_bytes: Mapping[str, int] = field(default_factory=dict[str, int])


def split_level(level: str) -> tuple[LevelName, bool]:
    """Return the level of a name, and whether it is exact: "original" or "original:manual".

    Raises UsageError for an unknown level.
    """
    first, _, second = level.partition(":")
    name = (second or "heuristics") if first == ORIGINAL else level
    for known in LEVELS:
        if known == name:
            return known, first == ORIGINAL
    raise UsageError(f"{unknown('level', level, LEVELS)}, or original:LEVEL for the exact rules of Grappler")


@without_collection()
def optimize_nodes(nodes: Sequence[NodeDef], situation: Situation, level: str, scope: str = DEFAULT_SCOPE) -> Changes:
    """Run a level on the nodes of a graph, one device after the other.

    Raises UsageError for an unknown level, an empty scope, and hints that match no node; UnsupportedError for control
    flow of TensorFlow 1.
    """
    name, as_grappler = split_level(level)
    body = body_of_graph(nodes, situation.where)
    refuse_v1(body, [True] * len(body.nodes))
    if situation.seconds is None:
        situation = replace(situation, seconds=estimated_seconds(body, situation.sizes, situation.devices))
    unchanged = Passes(nodes, situation, scope if as_grappler else _scope_of(nodes, scope))
    before = unchanged.estimates()
    if name == "no":
        return _changes(unchanged, before, before)
    if as_grappler:
        tried = [unchanged.restarted().optimize_as_grappler(name)]
    elif name not in RECOMPUTING or name == "manual":
        tried = [unchanged.restarted().optimize(name, None)]
    else:
        useful, all_groups = unchanged.worth_recomputing()
        tried = [unchanged.restarted().optimize(name, set()) if name in SWAPPING else unchanged.restarted()]
        choices = [useful] if useful == all_groups else [useful, all_groups]
        tried += [unchanged.restarted().optimize(name, chosen) for chosen in choices if chosen]
        if all_groups:
            tried.append(unchanged.restarted().optimize_as_grappler(name))
    after, best = _lowest(tried)
    may_copy = name in RECOMPUTING and name != "manual" and not as_grappler
    if may_copy and sum(after.values()) > _LOWERED * sum(before.values()):
        work = unchanged.restarted()
        if work.recompute_any_kind():
            after, best = _lowest([best, work.optimize(name, set()) if name in SWAPPING else work])
    best.relax()
    return _changes(best, before, after)


def _scope_of(nodes: Sequence[NodeDef], scope: str) -> str:
    """Return `scope`, or the scope of TensorFlow 2 if the default scope has no nodes."""
    if scope != DEFAULT_SCOPE or any(is_in_scope(node.name, scope) for node in nodes):
        return scope
    return TAPE_SCOPE


def _lowest(tried: Sequence[Passes]) -> tuple[dict[str, int], Passes]:
    estimated = [(work.estimates(), work) for work in tried]
    return min(estimated, key=lambda each: sum(each[0].values()))


def _changes(work: Passes, before: Mapping[str, int], after: Mapping[str, int]) -> Changes:
    return Changes(
        nodes=work.nodes.finish(),
        recomputed=work.recomputed,
        swapped=work.swapped,
        accumulated=work.accumulated,
        relaxed=work.relaxed,
        before_bytes=before,
        after_bytes=after,
    )
