"""Fused ops of chunks between two products, for fewer compiled kernels (`FuseChunkOps`)."""

import operator
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import torch
from torch.fx import Graph, GraphModule, Node

from lowtide.frameworks.torch.internals.nodes import graph_module, storages_of, value_of
from lowtide.frameworks.torch.internals.operators import is_view, op_name, overload_of
from lowtide.frameworks.torch.reading.effects import is_random, mutated_arguments, overwritten_storages
from lowtide.frameworks.torch.reading.outlined import outlined_op
from lowtide.frameworks.torch.rewrites.chunks.product_region import bytes_of
from lowtide.frameworks.torch.rewrites.rewrite import Rewrite, call_like

aten = torch.ops.aten
_FUSIBLE = (
    *("sum", "mean", "amax", "amin", "gather", "clone", "_to_copy", "convert_element_type", "where", "_unsafe_view"),
    *("full", "scalar_tensor", "iota"),
)
"""Ops without the tag "pointwise" that compilers fuse."""
_FACTORIES = ("empty",)


@dataclass(frozen=True, eq=False)
class FusedOps:
    """Ops that run as one, and the results that others read."""

    nodes: Sequence[Node]
    results: Sequence[Node]


@dataclass(frozen=True)
class FuseChunkOps(Rewrite[FusedOps]):
    """Replace the fusible ops between two other ops by one call.

    Views of operands stay outside, so that equal chunks share one function.
    """

    name = "fuse-chunk-ops"
    source = "Ops without effects give the same results whenever they run on the same operands."
    hold: Callable[[GraphModule], str]

    def sites(self, module: GraphModule) -> Sequence[FusedOps]:
        order = _Order(list(module.graph.nodes))
        return [] if order.has_conflict else list(order.groups())

    def apply(self, module: GraphModule, sites: Sequence[FusedOps]) -> GraphModule:
        return _Fused(module, {node: group for group in sites for node in group.nodes}, self.hold).module()


@dataclass(frozen=True)
class _Order:
    """The order in which fusible ops with results larger than their operands run late.

    Slot k is the time before the k-th op that is not fused.
    """

    nodes: Sequence[Node]

    @cached_property
    def slots(self) -> dict[Node, int]:
        found, slot = dict[Node, int](), 0
        for node in self.nodes:
            before = max((found[source] for source in node.all_input_nodes if not _is_fixed(source)), default=0)
            found[node] = self._latest[node] if _grows(node) else max(before, slot)
            slot += _is_fixed(node)
        return found

    @cached_property
    def _latest(self) -> dict[Node, int]:
        found = dict[Node, int]()
        slot = sum(map(_is_fixed, self.nodes))
        written: list[tuple[int, set[int]]] = []
        for node in reversed(self.nodes):
            slot -= _is_fixed(node)
            if _is_fixed(node) or _is_copy(node):
                found[node] = slot
                written.append((slot, overwritten_storages(node)))
                continue
            found[node] = min((found[user] for user in node.users), default=slot)
            if is_fusible(node):
                read = storages_of(*node.all_input_nodes)
                found[node] = min([found[node], *(place for place, storages in written if read & storages)])
        return found

    @cached_property
    def has_conflict(self) -> bool:
        copied: list[tuple[int, set[int]]] = []
        for node in self.nodes:
            if _is_copy(node):
                copied.append((self.slots[node], overwritten_storages(node)))
            elif is_fusible(node):
                read = storages_of(*node.all_input_nodes)
                if any(slot == self.slots[node] and read & storages for slot, storages in copied):
                    return True
        return False

    def groups(self) -> Iterator[FusedOps]:
        """Yield the fusible ops of each slot that would write more bytes for each other than they read."""
        members: dict[int, list[Node]] = {}
        for node in self.nodes:
            if is_fusible(node):
                members.setdefault(self.slots[node], []).append(node)
        for nodes in members.values():
            inside = set(nodes)
            results = [node for node in nodes if not all(user in inside for user in _readers(node))]
            read = {_read_by(source) for node in nodes for source in node.all_input_nodes} - inside
            inner = inside.difference(results)
            if results and sum(map(bytes_of, inner)) > sum(map(bytes_of, read)):
                yield FusedOps(nodes, results)


def is_fusible(node: Node) -> bool:
    target = overload_of(node.target)
    if target is None or is_view(target) or is_random(node) or mutated_arguments(node):
        return False
    is_known = torch.Tag.pointwise in target.tags or op_name(target) in _FUSIBLE
    return is_known and isinstance(value_of(node), torch.Tensor)


def _grows(node: Node) -> bool:
    return is_fusible(node) and all(bytes_of(_read_by(source)) < bytes_of(node) for source in node.all_input_nodes)


def _read_by(node: Node) -> Node:
    while is_view(node.target) and _is_expanded(node):
        node = node.all_input_nodes[0]
    return node


def _is_copy(node: Node) -> bool:
    return node.target is aten.copy_.default


def _is_fixed(node: Node) -> bool:
    if node.op != "call_function":
        return node.op == "output"
    is_light = is_view(node.target) or node.target is operator.getitem or op_name(node.target) in _FACTORIES
    return not (is_light or is_fusible(node) or _is_copy(node))


def _readers(node: Node) -> Iterator[Node]:
    for user in node.users:
        if is_view(user.target):
            yield from _readers(user)
        else:
            yield user


@dataclass
class _Fused:
    given: GraphModule
    group_of: dict[Node, FusedOps]
    hold: Callable[[GraphModule], str]
    graph: Graph = field(default_factory=Graph)
    made: dict[Node, Node] = field(default_factory=dict[Node, Node])

    def module(self) -> GraphModule:
        nodes = list(self.given.graph.nodes)
        slots = _Order(nodes).slots
        waiting = sorted([*filter(is_fusible, nodes), *filter(_is_copy, nodes)], key=slots.__getitem__)
        slot = 0
        for node in nodes:
            if node.op == "placeholder":
                self._copied(node)
            elif _is_fixed(node):
                while waiting and slots[waiting[0]] <= slot:
                    self._compute(waiting.pop(0))
                self._copied(node)
                slot += 1
        return graph_module(self.given, self.graph)

    def _copied(self, node: Node) -> Node:
        for source in node.all_input_nodes:
            self._operand(source)
        self.made[node] = self.graph.node_copy(node, self.made.__getitem__)
        return self.made[node]

    def _operand(self, node: Node) -> Node:
        self._compute(node)
        return self.made[node]

    def _compute(self, node: Node) -> None:
        group = self.group_of.get(node)
        if group is None and node not in self.made:
            self._copied(node)
        elif group is not None and group.results[0] not in self.made:
            body, operands = _body(self.given, group)
            given = [self._operand(operand) for operand in operands]
            n_results = len(group.results)
            call = call_like(group.nodes[-1], self.graph, outlined_op(n_results), given, [], [], self.hold(body))
            for place, result in enumerate(group.results):
                item = call if n_results == 1 else call_like(result, self.graph, operator.getitem, call, place)
                self.made[result] = item


def _body(module: GraphModule, group: FusedOps) -> tuple[GraphModule, list[Node]]:
    nodes, operands = _computed_within(group)
    graph, made = Graph(), dict[Node, Node]()
    for place, node in enumerate(operands):
        made[node] = graph.placeholder(f"given_{place}")
        made[node].meta["val"] = value_of(node)
    for place, node in enumerate(nodes):
        made[node] = graph.node_copy(node, made.__getitem__)
        made[node].name = f"value_{place}"
    graph.output([made[node] for node in group.results])
    return graph_module(module, graph), operands


def _computed_within(group: FusedOps) -> tuple[list[Node], list[Node]]:
    inside, operands = dict[Node, None](), dict[Node, None]()
    members = set(group.nodes)

    def add(node: Node) -> bool:
        if node in inside or node in operands:
            return node in inside
        sources = [add(source) for source in node.all_input_nodes] if node in members or is_view(node.target) else []
        is_within = node in members or (is_view(node.target) and (any(sources) or _is_expanded(node)))
        (inside if is_within else operands)[node] = None
        return is_within

    for node in group.nodes:
        add(node)
    read = {source for node in inside for source in node.all_input_nodes}
    return list(inside), [node for node in operands if node in read]


def _is_expanded(node: Node) -> bool:
    return value_of(node).numel() > value_of(node.all_input_nodes[0]).numel()
