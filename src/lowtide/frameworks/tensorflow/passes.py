"""The passes of Grappler's memory optimizer on nodes."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from lowtide.core.index_spaces import OpId
from lowtide.engine.graph import Graph
from lowtide.engine.planning.find_plan import find_plan
from lowtide.engine.planning.settings import PlanSettings
from lowtide.frameworks.tensorflow.graphs.attributes import of_bool
from lowtide.frameworks.tensorflow.graphs.node_def import NodeDef
from lowtide.frameworks.tensorflow.grappler.accumulate import sums_near_capacity
from lowtide.frameworks.tensorflow.grappler.levels import (
    MOST_ROUNDS,
    RECOMPUTING,
    SCHEDULING,
    SWAPPING,
    LevelName,
    optimize_memory,
)
from lowtide.frameworks.tensorflow.grappler.nodes import CHEAP_KINDS, CHEAP_KINDS_TODAY, nodes_of, relaxed_assignments
from lowtide.frameworks.tensorflow.grappler.pressure import estimated_pressure
from lowtide.frameworks.tensorflow.grappler.recompute import bytes_saved, groups_in_scope, target_ops
from lowtide.frameworks.tensorflow.grappler.swaps import PCIE_BYTES_PER_SECOND, Skipped, Swap, choose_swaps, make_swaps
from lowtide.frameworks.tensorflow.operators import spec_of
from lowtide.frameworks.tensorflow.reading.body import NodeBody, body_of_graph
from lowtide.frameworks.tensorflow.reading.devices import Devices
from lowtide.frameworks.tensorflow.reading.node_graph import hints_of, node_graph
from lowtide.frameworks.tensorflow.rewrites.edited_nodes import (
    RECOMPUTED,
    SWAPPED_IN,
    SWAPPED_OUT,
    EditedNodes,
    node_of,
)
from lowtide.frameworks.tensorflow.rewrites.memory_rewrites import (
    SwappedInput,
    accumulate_in_nodes,
    add_swap,
    recompute_as_grappler,
    recompute_late,
)
from lowtide.frameworks.tensorflow.shapes import Shapes, Sizes, output_types

RELAXED = "_grappler_relax_allocator_constraints"
_ACCUMULATE = "AssignAdd"
_BUDGET, _MOST_PLANNED_OPS = "80%", 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """Data of nodes: sizes, devices, feeds, costs."""

    where: str
    sizes: Sizes
    shapes: Shapes
    devices: Devices
    fed: Sequence[str] = ()
    seconds: Mapping[str, float] | None = None
    """Per node; if None, estimated from bytes."""


class Passes:
    """A graph that a level's passes change."""

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
        self._nodes = nodes
        self._graphs: dict[tuple[int, str, bool], tuple[NodeBody, Graph]] = {}

    def restarted(self) -> "Passes":
        made = Passes(self._nodes, self._situation, self._scope)
        made._graphs = {key: each for key, each in self._graphs.items() if not key[0]}
        return made

    def estimates(self) -> dict[str, int]:
        """Return Grappler's estimated peak bytes by device."""
        return {device: estimated_pressure(self._graph(device)[1], 0, 0).excess_bytes for device in self.devices}

    def worth_recomputing(self) -> tuple[set[str], set[str]]:
        """Return the nodes of groups that save memory if recomputed, and of all groups."""
        body, graph = self._graph(self.devices[0])
        neighbors = nodes_of(graph)
        hints = hints_of(body, self._situation.fed)
        groups = groups_in_scope(graph, neighbors, self._scope, CHEAP_KINDS_TODAY, hints)
        useful = [group for group in groups if bytes_saved(graph, neighbors, group) > 0]
        names = graph.op_names
        return {names[op] for each in useful for op in each.ops}, {names[op] for each in groups for op in each.ops}

    def optimize(self, level: LevelName, recomputed: set[str] | None) -> "Passes":
        """Run lowtide's passes, device by device.

        `recomputed` are nodes that may be recomputed on all devices; None leaves the choice to the level.
        """
        for number, device in enumerate(self.devices):
            self._optimize(_later(level) if number else level, device, recomputed)
        return self

    def _optimize(self, level: LevelName, device: str, recomputed: set[str] | None) -> None:
        body, graph = self._graph(device)
        hints = hints_of(body, self._situation.fed)
        if not recomputed and recomputed is not None and graph.spaces[0].capacity_bytes is None and not hints.swap:
            return  # no capacity and no hints
        if recomputed is not None:
            hints = replace(hints, recompute=frozenset(recomputed))
        done = optimize_memory(
            graph,
            level,
            hints=hints,
            scope=self._scope,
            cheap_kinds=CHEAP_KINDS_TODAY if recomputed is None else (),
            may_swap=self._situation.devices.has_other_memory(device),
        )
        place = {name: op for op, name in enumerate(graph.op_names)}
        for name in done.accumulated:
            self._accumulate(name, place)
        if done.recomputed:
            order: list[int] = done.plan.order().tolist()
            self.recomputed += recompute_late(self.nodes, [done.graph.op_names[op] for op in order])
            self._add_copies(self.recomputed)
        for swap in done.swapped:
            if self._swap(swap, done.graph):
                self._hold_back(swap.op, done.graph)

    def recompute_any_kind(self) -> bool:
        """Recompute nodes of any kind, planned for 80 % of the peak; return whether there are any.

        Graphs without gradients, with copies, or over 10,000 nodes stay unchanged.
        """
        body, graph = self._graph(self.devices[0])
        targets = target_ops(graph, self._scope)
        has_copies = any(name.startswith(RECOMPUTED) for name in graph.op_names)
        if not any(targets) or graph.n_ops > _MOST_PLANNED_OPS or has_copies:
            return False
        fed = hints_of(body, self._situation.fed).fed
        pure = [
            bool(may) and not target and name not in fed
            for may, target, name in zip(graph.pure, targets, graph.op_names, strict=True)
        ]
        settings = PlanSettings(budget=_BUDGET, techniques=frozenset({"recompute"}), effort="fast", addresses=False)
        plan = find_plan(replace(graph, pure=np.asarray(pure)), settings).plan
        order: list[int] = plan.order().tolist()
        self.recomputed += recompute_late(self.nodes, [graph.op_names[op] for op in order])
        self._add_copies(self.recomputed)
        return bool(self.recomputed)

    def optimize_as_grappler(self, level: LevelName) -> "Passes":
        if level in RECOMPUTING:
            self._recompute_as_grappler(level)
        for space in self._situation.devices.spaces:
            self._rounds_as_grappler(level, space.name, space.capacity_bytes)
        return self

    def _rounds_as_grappler(self, level: LevelName, device: str, capacity: int | None) -> None:
        for _ in range(MOST_ROUNDS):
            changed = False
            if level in SCHEDULING and capacity is not None:
                _, graph = self._graph(device)
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
        _, graph = self._graph(self.devices[0])
        self.relaxed = relaxed_assignments(graph, nodes_of(graph))
        for name in self.relaxed:
            self.nodes.set_attribute(name, RELAXED, of_bool(True))

    def _graph(self, device: str, *, may_all_rerun: bool = False) -> tuple[NodeBody, Graph]:
        key = (self.nodes.edits, device, may_all_rerun)
        if key not in self._graphs:
            body = body_of_graph(self.nodes.finish(), self._situation.where)
            graph = node_graph(
                body, self._sizes, self._situation.devices, device, seconds=self._seconds, may_all_rerun=may_all_rerun
            )
            self._graphs[key] = (body, graph)
        return self._graphs[key]

    def _recompute_as_grappler(self, level: LevelName) -> None:
        body, graph = self._graph(self.devices[0], may_all_rerun=True)
        cheap = () if level == "manual" else CHEAP_KINDS
        hints = hints_of(body, self._situation.fed)
        groups = groups_in_scope(graph, nodes_of(graph), self._scope, cheap, hints)
        named = [
            ([graph.op_names[op] for op in group.ops], [graph.op_names[op] for op in group.targets]) for group in groups
        ]
        self.recomputed += recompute_as_grappler(self.nodes, body, named)
        self._add_copies(self.recomputed)

    def _swap_as_grappler(self, level: LevelName, device: str, capacity: int | None) -> None:
        body, graph = self._graph(device)
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

    def _add_copies(self, names: Iterable[str]) -> None:
        for name in names:
            for port, _ in enumerate(output_types(self.nodes.node(name))):
                self._sizes[f"{RECOMPUTED}{name}", port] = self._sizes.get((name, port))
            self._seconds[f"{RECOMPUTED}{name}"] = self._seconds.get(name, 0.0)

    def _hold_back(self, reader: OpId, graph: Graph) -> None:
        """Make the next op on the device wait for a swapped value's reader, so that its inputs are freed early."""
        for op in range(reader + 1, graph.n_ops):
            if graph.devices[op] == graph.devices[reader] and graph.reads[op].size:
                self.nodes.wait_for(graph.op_names[op], graph.op_names[reader])
                break

    def _swap(self, swap: Swap, graph: Graph) -> bool:
        name = graph.op_names[swap.op]
        devices = self._situation.devices
        if not devices.has_other_memory(devices.by_node.get(name, devices.fallback)):
            return False
        number = swap.read + (self.nodes.node(name).op == _ACCUMULATE)
        spec = spec_of(self.nodes.node(name).op)
        references = [] if spec is None else spec.input_types(self.nodes.node(name))
        if number < len(references) and references[number][1]:
            return False
        source, _, port = self.nodes.inputs(name)[number].partition(":")
        kinds = output_types(self.nodes.node(source))
        made = SwappedInput(
            node=name,
            number=number,
            type=kinds[int(port or 0)] if int(port or 0) < len(kinds) else 0,
            out_trigger=graph.op_names[swap.out_trigger],
            in_trigger=graph.op_names[swap.in_trigger],
        )
        if not add_swap(self.nodes, made):
            return False
        self.swapped.append(made)
        key = f"{name}_{number}"
        self._sizes[f"{SWAPPED_IN}{key}", 0] = self._sizes.get((node_of(source), int(port or 0)))
        self._sizes[f"{SWAPPED_OUT}{key}", 0] = 0
        return True


def _later(level: LevelName) -> LevelName:
    if level == "heuristics":
        return "default"
    return "no" if level == "recomputation" else level
