"""Grappler's memory optimizer on a graph of TensorFlow: its seven levels, as mended here or to the letter."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from lowtide.core.collection import without_collection
from lowtide.core.errors import UsageError, unknown
from lowtide.frameworks.tensorflow.graphs.node_def import NodeDef
from lowtide.frameworks.tensorflow.grappler import DEFAULT_SCOPE, LEVELS, LevelName
from lowtide.frameworks.tensorflow.grappler.groups import TAPE_SCOPE, is_in_scope
from lowtide.frameworks.tensorflow.grappler.levels import RECOMPUTING, SWAPPING
from lowtide.frameworks.tensorflow.passes import Passes, Situation
from lowtide.frameworks.tensorflow.reading.body import body_of_graph, refuse_v1
from lowtide.frameworks.tensorflow.reading.node_graph import estimated_seconds
from lowtide.frameworks.tensorflow.rewrites.swap import SwappedInput

ORIGINAL = "original"
_LOWERED = 0.99
"""The share of an estimate above which it counts as unchanged."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """What a level did, by the names of nodes."""

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
    """Return the level that a name stands for, and whether it is meant to the letter: "original" or "original:manual".

    Raises UsageError for an unknown one.
    """
    first, _, second = level.partition(":")
    name = (second or "heuristics") if first == ORIGINAL else level
    for known in LEVELS:
        if known == name:
            return known, first == ORIGINAL
    raise UsageError(f"{unknown('level', level, LEVELS)}, or original:LEVEL for the rules of Grappler to the letter")


@without_collection()
def optimize_nodes(nodes: Sequence[NodeDef], situation: Situation, level: str, scope: str = DEFAULT_SCOPE) -> Changes:
    """Return what a level makes of the nodes of a graph, one device after the other.

    Raises UsageError for an unknown level, an empty scope and hints that fit nothing, UnsupportedError for control
    flow of TensorFlow 1, of which a copy or a control edge could wait for what never runs.
    """
    name, to_the_letter = split_level(level)
    body = body_of_graph(nodes, situation.where)
    refuse_v1(body, [True] * len(body.nodes))
    if situation.seconds is None:
        situation = replace(situation, seconds=estimated_seconds(body, situation.sizes, situation.devices))
    untouched = Passes(nodes, situation, scope if to_the_letter else _scope_of(nodes, scope))
    before = _estimates(untouched)
    if name == "no":
        return _changes(untouched, before, before)
    if to_the_letter:
        tried = [_done_as_grappler(untouched.again(), name)]
    elif name not in RECOMPUTING or name == "manual":
        tried = [_done(untouched.again(), name, None)]
    else:
        useful, all_of_them = untouched.worth_recomputing()
        tried = [_done(untouched.again(), name, set()) if name in SWAPPING else untouched.again()]
        tried += [_done(untouched.again(), name, chosen) for chosen in _distinct(useful, all_of_them) if chosen]
        if all_of_them:
            tried.append(_done_as_grappler(untouched.again(), name))
    after, best = _least(tried)
    may_copy = name in RECOMPUTING and name != "manual" and not to_the_letter
    if may_copy and sum(after.values()) > _LOWERED * sum(before.values()):
        work = untouched.again()
        if work.recompute_any_kind():
            after, best = _least([best, _done(work, name, set()) if name in SWAPPING else work])
    best.relax()
    return _changes(best, before, after)


def _scope_of(nodes: Sequence[NodeDef], scope: str) -> str:
    """Return the scope of a tape's gradients where the default one holds nothing: Grappler does not know it."""
    if scope != DEFAULT_SCOPE or any(is_in_scope(node.name, scope) for node in nodes):
        return scope
    return TAPE_SCOPE


def _done(work: Passes, level: LevelName, recomputed: set[str] | None) -> Passes:
    """Return a graph after a level; `recomputed` is what may be computed again, None for what the level says."""
    for number, device in enumerate(work.devices):
        work.optimize(level, device, recomputed, is_first=not number)
    return work


def _done_as_grappler(work: Passes, level: LevelName) -> Passes:
    for number, device in enumerate(work.devices):
        work.optimize_as_grappler(level, device, is_first=not number)
    return work


def _least(tried: Sequence[Passes]) -> tuple[dict[str, int], Passes]:
    """Return the graph with the least estimate of its peaks, the first of these, and its estimates."""
    estimated = [(_estimates(work), work) for work in tried]
    return min(estimated, key=lambda each: sum(each[0].values()))


def _estimates(work: Passes) -> dict[str, int]:
    return {device: work.estimate(device) for device in work.devices}


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


def _distinct(*choices: set[str]) -> list[set[str]]:
    return [choice for number, choice in enumerate(choices) if choice not in choices[:number]]
