"""Levels of Grappler's memory optimizer on nodes."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from lowtide.core.collection import without_collection
from lowtide.core.errors import UnsupportedError, UsageError, unknown
from lowtide.frameworks.tensorflow.graphs.node_def import NodeDef
from lowtide.frameworks.tensorflow.grappler.levels import LEVELS, RECOMPUTING, SWAPPING, LevelName
from lowtide.frameworks.tensorflow.grappler.recompute import DEFAULT_SCOPE, TAPE_SCOPE, is_in_scope
from lowtide.frameworks.tensorflow.passes import Passes, Situation
from lowtide.frameworks.tensorflow.reading.body import NodeCycleError, body_of_graph, refuse_v1
from lowtide.frameworks.tensorflow.reading.node_graph import estimated_seconds
from lowtide.frameworks.tensorflow.rewrites.memory_rewrites import SwappedInput

ORIGINAL = "original"
_LOWERED = 0.99
"""Estimates above this share count as unchanged."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """The nodes after a level, and its changes."""

    nodes: Sequence[NodeDef]
    recomputed: Sequence[str] = ()
    swapped: Sequence[SwappedInput] = ()
    accumulated: Sequence[str] = ()
    relaxed: Sequence[str] = ()
    """Assignments that need no pinned memory."""
    before_bytes: Mapping[str, int] = field(default_factory=dict[str, int])
    """Grappler's estimate of the peak by device."""
    after_bytes: Mapping[str, int] = field(default_factory=dict[str, int])


def split_level(level: str) -> tuple[LevelName, bool]:
    """Return a named level, and whether it is exact ("original:manual"); raises UsageError if unknown."""
    first, _, second = level.partition(":")
    name = (second or "heuristics") if first == ORIGINAL else level
    for known in LEVELS:
        if known == name:
            return known, first == ORIGINAL
    raise UsageError(f"{unknown('level', level, LEVELS)}, or original:LEVEL for the exact rules of Grappler")


@without_collection()
def optimize_nodes(nodes: Sequence[NodeDef], situation: Situation, level: str, scope: str = DEFAULT_SCOPE) -> Changes:
    """Run a level on the nodes of a graph, one device after the other.

    Candidates with a cycle are dropped; if none is left, the graph is unchanged. Raises UsageError for an unknown
    level, an empty scope, and hints that match no node; UnsupportedError for control flow of TensorFlow 1, and if an
    exact level makes a cycle.
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
        candidates = [_as_grappler(name)]
    elif name not in RECOMPUTING or name == "manual":
        candidates = [_optimized(name, None)]
    else:
        useful, all_groups = unchanged.worth_recomputing()
        candidates = [_optimized(name, set()) if name in SWAPPING else _as_is]
        choices = [useful] if useful == all_groups else [useful, all_groups]
        candidates += [_optimized(name, chosen) for chosen in choices if chosen]
        if all_groups:
            candidates.append(_as_grappler(name))
    found = _lowest(_estimated(unchanged, make) for make in candidates)
    if found is None and as_grappler:
        raise UnsupportedError(
            f"{situation.where}: Grappler's rules for level {name!r} make a graph with a cycle; use level {name!r}"
        )
    after, best = found or (before, unchanged.restarted())
    may_copy = name in RECOMPUTING and name != "manual" and not as_grappler
    if may_copy and sum(after.values()) > _LOWERED * sum(before.values()):
        after, best = _lowest([(after, best), _estimated(unchanged, _recomputing_any_kind(name))]) or (after, best)
    best.relax()
    return _changes(best, before, after)


def _scope_of(nodes: Sequence[NodeDef], scope: str) -> str:
    if scope != DEFAULT_SCOPE or any(is_in_scope(node.name, scope) for node in nodes):
        return scope
    return TAPE_SCOPE


_Candidate = Callable[[Passes], Passes | None]
_Estimated = tuple[Mapping[str, int], Passes]


def _as_is(passes: Passes) -> Passes:
    return passes


def _optimized(level: LevelName, recomputed: set[str] | None) -> _Candidate:
    return lambda passes: passes.optimize(level, recomputed)


def _as_grappler(level: LevelName) -> _Candidate:
    return lambda passes: passes.optimize_as_grappler(level)


def _recomputing_any_kind(level: LevelName) -> _Candidate:
    def run(passes: Passes) -> Passes | None:
        if not passes.recompute_any_kind():
            return None
        return passes.optimize(level, set()) if level in SWAPPING else passes

    return run


def _estimated(unchanged: Passes, make: _Candidate) -> _Estimated | None:
    try:
        work = make(unchanged.restarted())
        return None if work is None else (work.estimates(), work)
    except NodeCycleError:  # the unchanged graph has no cycle, so the added edges made one
        return None


def _lowest(candidates: Iterable[_Estimated | None]) -> _Estimated | None:
    found = [each for each in candidates if each is not None]
    return min(found, key=lambda each: sum(each[0].values()), default=None)


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
