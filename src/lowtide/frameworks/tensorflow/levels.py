"""Grappler's memory optimizer on a graph of TensorFlow: its seven levels, as mended here or to the letter."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import get_args

from lowtide.errors import UsageError
from lowtide.frameworks.tensorflow.graphs.attributes import of_bool
from lowtide.frameworks.tensorflow.graphs.node_def import NodeDef
from lowtide.frameworks.tensorflow.operators.ops import spec_of
from lowtide.frameworks.tensorflow.reading.body import NodeBody, body_of_graph
from lowtide.frameworks.tensorflow.reading.devices import Devices
from lowtide.frameworks.tensorflow.reading.node_graph import estimated_seconds, hints_of, node_graph
from lowtide.frameworks.tensorflow.rewrites.accumulate import accumulate_in_nodes
from lowtide.frameworks.tensorflow.rewrites.edited import EditedNodes
from lowtide.frameworks.tensorflow.rewrites.names import RECOMPUTED, SWAPPED_IN, SWAPPED_OUT, node_of
from lowtide.frameworks.tensorflow.rewrites.recompute import recompute_as_grappler, recompute_late
from lowtide.frameworks.tensorflow.rewrites.swap import SwappedInput, add_swap
from lowtide.frameworks.tensorflow.shapes.sizes import Shapes, Sizes, output_types
from lowtide.graph import Graph
from lowtide.grappler import DEFAULT_SCOPE, LevelName, estimated_pressure, optimize_memory
from lowtide.grappler.allocator_constraints import relaxed_assignments
from lowtide.grappler.groups import bytes_saved, candidate_ops, recompute_groups, target_ops
from lowtide.grappler.kinds import CHEAP_KINDS, CHEAP_KINDS_TODAY
from lowtide.grappler.levels import MOST_ROUNDS, RECOMPUTING, SCHEDULING, SWAPPING
from lowtide.grappler.nodes import nodes_of
from lowtide.grappler.sums import sums_near_capacity
from lowtide.grappler.swap_choice import Skipped, choose_swaps
from lowtide.grappler.swaps import PCIE_BYTES_PER_SECOND, Swap, make_swaps

ORIGINAL = "original"
RELAXED = "_grappler_relax_allocator_constraints"
_ACCUMULATE = "AssignAdd"


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """What is known of a graph beside its nodes."""

    where: str
    sizes: Sizes
    shapes: Shapes
    devices: Devices
    fed: Sequence[str] = ()
    seconds: Mapping[str, float] | None = None
    """What nodes take; estimated from bytes where it is None."""


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
    for known in get_args(LevelName):
        if known == name:
            return known, first == ORIGINAL
    names = ", ".join(get_args(LevelName))
    raise UsageError(
        f"unknown level {level!r}; choose one of {names}, or original:LEVEL for the rules of Grappler to the letter"
    )


def optimize_nodes(nodes: Sequence[NodeDef], situation: Situation, level: str, scope: str = DEFAULT_SCOPE) -> Changes:
    """Return what a level makes of the nodes of a graph, one device after the other.

    Raises UsageError for an unknown level, an empty scope and hints that fit nothing, UnsupportedError for loops of
    TensorFlow 1.
    """
    name, to_the_letter = split_level(level)
    if situation.seconds is None:
        body = body_of_graph(nodes, situation.where)
        situation = replace(situation, seconds=estimated_seconds(body, situation.sizes, situation.devices))
    before = _estimates(_Work(nodes, situation, scope))
    if to_the_letter:
        return _changes(_done_as_grappler(nodes, situation, name, scope), before)
    if name not in RECOMPUTING or name == "manual":
        return _changes(_done(nodes, situation, name, scope, None), before)
    untouched = _Work(nodes, situation, scope)
    useful, all_of_them = untouched.worth_recomputing()
    tried = [_done(nodes, situation, name, scope, set())]
    tried += [_done(nodes, situation, name, scope, chosen) for chosen in _distinct(useful, all_of_them) if chosen]
    if all_of_them:
        tried.append(_done_as_grappler(nodes, situation, name, scope))
    return min((_changes(work, before) for work in tried), key=lambda changes: sum(changes.after_bytes.values()))


def _done(
    nodes: Sequence[NodeDef], situation: Situation, level: LevelName, scope: str, recomputed: set[str] | None
) -> "_Work":
    """Return a graph after a level; `recomputed` is what may be computed again, None for what the level says."""
    work = _Work(nodes, situation, scope)
    if level != "no":
        for number, device in enumerate(work.devices):
            work.optimize(level, device, recomputed, is_first=not number)
        work.relax()
    return work


def _done_as_grappler(nodes: Sequence[NodeDef], situation: Situation, level: LevelName, scope: str) -> "_Work":
    work = _Work(nodes, situation, scope)
    if level != "no":
        for number, device in enumerate(work.devices):
            work.optimize_as_grappler(level, device, is_first=not number)
        work.relax()
    return work


def _estimates(work: "_Work") -> dict[str, int]:
    return {device: work.estimate(device) for device in work.devices}


def _changes(work: "_Work", before: Mapping[str, int]) -> Changes:
    return Changes(
        nodes=work.nodes.finish(),
        recomputed=work.recomputed,
        swapped=work.swapped,
        accumulated=work.accumulated,
        relaxed=work.relaxed,
        before_bytes=before,
        after_bytes=_estimates(work),
    )


def _distinct(*choices: set[str]) -> list[set[str]]:
    return [choice for number, choice in enumerate(choices) if choice not in choices[:number]]


class _Work:
    """A graph while the passes of a level change it."""

    def __init__(self, nodes: Sequence[NodeDef], situation: Situation, scope: str) -> None:
        self.nodes = EditedNodes(nodes)
        self.recomputed: list[str] = []
        self.swapped: list[SwappedInput] = []
        self.accumulated: list[str] = []
        self.relaxed: list[str] = []
        self._situation = situation
        self.devices = [space.name for space in situation.devices.spaces]
        self._scope = scope
        self._sizes = dict(situation.sizes)
        self._seconds = dict(situation.seconds or {})
        self._skipped: set[str] = set()

    def estimate(self, device: str) -> int:
        """Return Grappler's estimate of the peak on a device, in bytes."""
        return estimated_pressure(self._graph(device), 0, 0).excess_bytes

    def worth_recomputing(self) -> tuple[set[str], set[str]]:
        """Return the nodes of all groups that keep less for their copies than these free, and those of all groups."""
        body = self._body()
        graph = self._graph(self.devices[0], body)
        neighbors = nodes_of(graph)
        targets = target_ops(graph, self._scope)
        hints = hints_of(body, self._situation.fed)
        groups = recompute_groups(neighbors, candidate_ops(graph, targets, CHEAP_KINDS_TODAY, hints), targets)
        useful = [group for group in groups if bytes_saved(graph, neighbors, group) > 0]
        names = graph.op_names
        return {names[op] for each in useful for op in each.ops}, {names[op] for each in groups for op in each.ops}

    def optimize(self, level: LevelName, device: str, recomputed: set[str] | None, *, is_first: bool) -> None:
        """Carry out what lowtide's passes choose for a device; recomputation is for all devices at once."""
        body = self._body()
        graph = self._graph(device, body)
        hints = hints_of(body, self._situation.fed)
        if recomputed is not None:
            hints = replace(hints, recompute=frozenset(recomputed))
        done = optimize_memory(
            graph,
            level if is_first else _later(level),
            hints=hints,
            scope=self._scope,
            cheap_kinds=CHEAP_KINDS_TODAY if recomputed is None else (),
        )
        place = {name: op for op, name in enumerate(graph.op_names)}
        for name in done.accumulated:
            self._accumulate(name, place)
        if done.recomputed:
            order: list[int] = done.plan.order().tolist()
            self.recomputed += recompute_late(self.nodes, [done.graph.op_names[op] for op in order])
            self._know_copies(self.recomputed)
        for swap in done.swapped:
            self._swap(swap, done.graph)

    def optimize_as_grappler(self, level: LevelName, device: str, *, is_first: bool) -> None:
        """Carry out what Grappler's passes choose for a device, to the letter."""
        if is_first and level in RECOMPUTING:
            self._recompute_as_grappler(level)
        capacity = next(space.capacity_bytes for space in self._situation.devices.spaces if space.name == device)
        for _ in range(MOST_ROUNDS):
            changed = False
            if level in SCHEDULING and capacity is not None:
                graph = self._graph(device)
                sums = sums_near_capacity(graph, estimated_pressure(graph, 0, capacity), capacity)
                place = {name: op for op, name in enumerate(graph.op_names)}
                for op in sums:
                    self._accumulate(graph.op_names[op], place)
                changed = bool(sums)
            if level in SWAPPING or level == "manual":
                self._swap_as_grappler(level, device, capacity)
            if not changed:
                break

    def relax(self) -> None:
        """Mark the assignments whose result may lie in any memory of their device."""
        body = self._body()
        graph = self._graph(self._situation.devices.spaces[0].name, body)
        self.relaxed = relaxed_assignments(graph, nodes_of(graph))
        for name in self.relaxed:
            self.nodes.set_attribute(name, RELAXED, of_bool(True))

    def _body(self) -> NodeBody:
        return body_of_graph(self.nodes.finish(), self._situation.where)

    def _graph(self, device: str, body: NodeBody | None = None, *, may_all_rerun: bool = False) -> Graph:
        return node_graph(
            body or self._body(),
            self._sizes,
            self._situation.devices,
            device,
            seconds=self._seconds,
            may_all_rerun=may_all_rerun,
        )

    def _recompute_as_grappler(self, level: LevelName) -> None:
        body = self._body()
        graph = self._graph(self._situation.devices.spaces[0].name, body, may_all_rerun=True)
        targets = target_ops(graph, self._scope)
        cheap = () if level == "manual" else CHEAP_KINDS
        candidates = candidate_ops(graph, targets, cheap, hints_of(body, self._situation.fed))
        groups = recompute_groups(nodes_of(graph), candidates, targets)
        named = [
            ([graph.op_names[op] for op in group.ops], [graph.op_names[op] for op in group.targets]) for group in groups
        ]
        self.recomputed += recompute_as_grappler(self.nodes, body, named)
        self._know_copies(self.recomputed)

    def _swap_as_grappler(self, level: LevelName, device: str, capacity: int | None) -> None:
        body = self._body()
        graph = self._graph(device, body)
        ops = {name: op for op, name in enumerate(graph.op_names)}
        skipped = Skipped({ops[name] for name in self._skipped if name in ops})
        neighbors = nodes_of(graph)
        chosen: dict[int, list[int]] = {}
        if level in SWAPPING and capacity is not None and device.startswith("/gpu"):
            for op, read in choose_swaps(graph, neighbors, estimated_pressure(graph, 0, capacity), skipped):
                chosen.setdefault(op, []).append(read)
        for name, reads in hints_of(body, ()).swap.items():
            chosen.setdefault(ops[name], []).extend(read for read in reads if read < len(graph.reads[ops[name]]))
        swaps = make_swaps(graph, neighbors, chosen, skipped, PCIE_BYTES_PER_SECOND)
        self._skipped.update(graph.op_names[op] for op in skipped.ops)
        for swap in swaps:
            self._swap(swap, graph)

    def _accumulate(self, name: str, place: Mapping[str, int]) -> None:
        size = self._sizes.get((name, 0))
        shape = self._situation.shapes.get((name, 0))
        seconds = self._seconds.get(name, 0.0)
        steps = accumulate_in_nodes(self.nodes, name, shape, place)
        for node in steps:
            self._sizes[node.name, 0] = size if node.op == "ZerosLike" else 0
            self._seconds[node.name] = seconds / len(steps)
        self.accumulated.append(name)

    def _know_copies(self, names: Iterable[str]) -> None:
        for name in names:
            for port, _ in enumerate(output_types(self.nodes.node(name))):
                self._sizes[f"{RECOMPUTED}{name}", port] = self._sizes.get((name, port))
            self._seconds[f"{RECOMPUTED}{name}"] = self._seconds.get(name, 0.0)

    def _swap(self, swap: Swap, graph: Graph) -> None:
        name = graph.op_names[swap.op]
        number = swap.read + (self.nodes.node(name).op == _ACCUMULATE)
        spec = spec_of(self.nodes.node(name).op)
        references = [] if spec is None else spec.input_types(self.nodes.node(name))
        if number < len(references) and references[number][1]:
            return
        source, _, port = self.nodes.inputs(name)[number].partition(":")
        kinds = output_types(self.nodes.node(source))
        made = SwappedInput(
            node=name,
            number=number,
            type=kinds[int(port or 0)] if int(port or 0) < len(kinds) else 0,
            out_trigger=graph.op_names[swap.out_trigger],
            in_trigger=graph.op_names[swap.in_trigger],
        )
        if add_swap(self.nodes, made):
            self.swapped.append(made)
            key = f"{name}_{number}"
            self._sizes[f"{SWAPPED_IN}{key}", 0] = self._sizes.get((node_of(source), int(port or 0)))
            self._sizes[f"{SWAPPED_OUT}{key}", 0] = 0


def _later(level: LevelName) -> LevelName:
    """Return what is left of a level for the second device and those after it."""
    if level == "heuristics":
        return "default"
    return "no" if level == "recomputation" else level
