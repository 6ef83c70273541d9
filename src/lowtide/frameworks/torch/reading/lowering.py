"""From nodes to ops and buffers: views contract to the storage they look at."""

import operator
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.fx import GraphModule, Node

from lowtide.core.errors import UnsupportedError
from lowtide.core.index_spaces import BufferId
from lowtide.engine.graph import Lifetime
from lowtide.frameworks.torch.internals import pytree
from lowtide.frameworks.torch.internals.hints import depends_on_values, is_limited
from lowtide.frameworks.torch.internals.nodes import map_nodes, value_of
from lowtide.frameworks.torch.internals.operators import is_view, op_name, overload_of, returns_anything
from lowtide.frameworks.torch.internals.tensors import storage_bytes, storage_key
from lowtide.frameworks.torch.reading.captured import attribute
from lowtide.frameworks.torch.reading.effects import (
    is_collective,
    is_opaque,
    is_random,
    is_repeatable_collective,
    mutated_arguments,
    waits_for_collective,
)
from lowtide.frameworks.torch.reading.scratch_loss import kept_bytes

LASTS = "lowtide_lasts"
"""Marks a node whose result stays to the end, so that what reads it can run again at any time."""

HELD_ELSEWHERE = "lowtide_held_elsewhere"
"""Marks a node whose result somebody else may hold too, so that nothing may take over its storage."""

_REPLACES_STORAGE = {"resize_", "resize_as_", "set_", "set_data", "_resize_output_"}
_READS_FORM_ONLY = {"sym_size", "sym_stride", "sym_numel", "sym_storage_offset", "_assert_tensor_metadata"}


@dataclass(slots=True)
class LoweredBuffer:
    """One storage."""

    name: str
    size_bytes: int
    lifetime: Lifetime
    device: torch.device | None
    held_elsewhere: bool = False


@dataclass(slots=True, eq=False)
class LoweredOp:
    """One node that allocates or computes."""

    node: Node
    reads: list[BufferId]
    writes: list[BufferId]
    mutates: list[BufferId]
    waits: list[Node] = field(default_factory=list[Node])
    """Of a collective, the waits that follow it at once. They are part of it, and return what it wrote."""


@dataclass(frozen=True, slots=True)
class InPlaceForm:
    """A way to run an op so that its output takes over the storage of an input."""

    read: BufferId
    write: BufferId
    target: Any
    operand: Node
    """The input whose storage the output takes over."""
    out_argument: str | None
    """Keyword of the output tensor; None for an in-place overload, which writes its first argument."""


@dataclass(slots=True, eq=False)
class Lowered:
    """An aten graph as ops over buffers; everything else in it is a view, a projection or an input."""

    ops: list[LoweredOp] = field(default_factory=list[LoweredOp])
    buffers: list[LoweredBuffer] = field(default_factory=list[LoweredBuffer])
    buffers_of: dict[Node, tuple[BufferId, ...]] = field(default_factory=dict[Node, tuple[BufferId, ...]])
    """The buffers in which a node's value lies, one per tensor or scalar in it."""
    in_place_forms: dict[LoweredOp, tuple[InPlaceForm, ...]] = field(
        default_factory=dict[LoweredOp, tuple[InPlaceForm, ...]]
    )
    """The in-place forms of the ops that were asked for them; see `in_place_forms`."""
    bodies: dict[str, "Lowered"] = field(default_factory=dict[str, "Lowered"])
    """The graphs called here, lowered, as far as somebody asked for them; see `lower_callee`."""


def lower_body(module: GraphModule) -> Lowered:
    """Lower a graph that an op calls; its inputs are persistent there, since the caller counts them."""
    placeholders = module.graph.find_nodes(op="placeholder")
    return lower(module, [(node.name, Lifetime.PERSISTENT) for node in placeholders])


def lower_callee(caller: Lowered, module: GraphModule, name: str) -> Lowered:
    """Return the lowered form of a graph that an op of `module` calls, and keep it with the caller's."""
    if name not in caller.bodies:
        caller.bodies[name] = lower_body(attribute(module, name))
    return caller.bodies[name]


def lower(module: GraphModule, inputs: Sequence[tuple[str, Lifetime]]) -> Lowered:
    """Lower an aten graph whose nodes carry fake or real tensors in `meta["val"]`.

    `inputs` has a name and a lifetime class per placeholder. Raises UnsupportedError for nodes that are no functions,
    carry no metadata, or give a tensor another storage.
    """
    lowering = _Lowering()
    remaining = iter(inputs)
    for node in module.graph.nodes:
        if node.op == "placeholder":
            name, lifetime = next(remaining)
            lowering.hold(node, name, value_of(node), lifetime)
        elif node.op == "get_attr":
            lowering.hold_constant(node, attribute(module, str(node.target)))
        elif node.op == "call_function":
            lowering.call(node)
        elif node.op == "output":
            lowering.keep_outputs(node)
        else:
            raise UnsupportedError(
                f"node '{node.name}' is a {node.op}; pass (function, example inputs) so that it is captured as aten ops"
            )
    return lowering.result


def nodes_in(arguments: Any) -> list[Node]:
    """Return the nodes in nested arguments, each once, in order."""
    found: dict[Node, None] = {}
    map_nodes(arguments, found.setdefault)
    return list(found)


class _Lowering:
    def __init__(self) -> None:
        self.result = Lowered()
        self._storages: dict[int, BufferId] = {}
        self._kept: list[Any] = []  # storages are known by address, so none may go away meanwhile
        self._names: set[str] = set()
        self._constants: dict[str, Node] = {}
        """The first node of every constant."""
        self._shaped_by: dict[Node, tuple[BufferId, ...]] = {}
        """Per view, the symbolic scalars that its shape is made of: whoever reads the view needs them."""

    def hold(self, node: Node, name: str, value: Any, lifetime: Lifetime) -> None:
        """Note a value that exists from the start."""
        self.result.buffers_of[node] = tuple(
            self._buffer_of(name, leaf, lifetime) for leaf in pytree.tree_leaves(value) if _is_data(leaf)
        )

    def hold_constant(self, node: Node, constant: Any) -> None:
        """Note a tensor that the program itself has, or another node for it; views lie where the node's value does."""
        value = constant if value_of(node) is None else value_of(node)
        known = self._constants.setdefault(str(node.target), node)
        if known is node:
            self.hold(node, node.name, value, Lifetime.PERSISTENT)
        else:
            leaves = [leaf for leaf in pytree.tree_leaves(value) if _is_data(leaf)]
            self._lies_in(node, leaves, self.result.buffers_of[known])

    def _lies_in(self, node: Node, leaves: list[Any], buffers: tuple[BufferId, ...]) -> None:
        """Note that what a node stands for lies in buffers that are known, whatever its storages are."""
        self.result.buffers_of[node] = buffers
        for leaf, buffer in zip(leaves, buffers, strict=True):
            self._kept.append(leaf)
            self._storages[storage_key(leaf)] = buffer

    def call(self, node: Node) -> None:
        """Note a call: an op, unless it only looks at storages that exist."""
        result = self.result
        if "val" not in node.meta and not _returns_nothing(node) and node.target is not operator.getitem:
            raise UnsupportedError(f"node '{node.name}' carries no tensor metadata; capture it with fake tensors")
        _check_storage(node)
        leaves = [leaf for leaf in pytree.tree_leaves(value_of(node)) if _is_data(leaf)]
        if waits_for_collective(node):
            self._wait(node, leaves)
            return
        known = len(result.buffers)
        if node.target is operator.getitem and _projects(node):
            result.buffers_of[node] = self._projected(node, leaves)
            (source,) = nodes_in(node.args)
            self._shaped_by[node] = self._shaped_by.get(source, ())
            return
        several = len(leaves) > 1
        lifetime = Lifetime.OUTPUT if LASTS in node.meta else Lifetime.INTERMEDIATE
        owned = tuple(
            self._buffer_of(f"{node.name}.{index}" if several else node.name, leaf, lifetime)
            for index, leaf in enumerate(leaves)
        )
        result.buffers_of[node] = owned
        for buffer in owned:
            result.buffers[buffer].held_elsewhere |= HELD_ELSEWHERE in node.meta
        mutates = self._buffers(mutated_arguments(node))
        writes = sorted({buffer for buffer in owned if buffer >= known})
        reads = self._buffers([node.args, node.kwargs])
        if owned:
            result.buffers[owned[0]].size_bytes = max(result.buffers[owned[0]].size_bytes, kept_bytes(node))
        if leaves and not writes and not mutates and not is_random(node) and not is_opaque(node):
            self._shaped_by[node] = tuple(buffer for buffer in reads if result.buffers[buffer].device is None)
            return
        if op_name(node.target) in _READS_FORM_ONLY:
            reads = [buffer for buffer in reads if result.buffers[buffer].lifetime is Lifetime.INTERMEDIATE]
        result.ops.append(LoweredOp(node, reads, writes, mutates))

    def keep_outputs(self, node: Node) -> None:
        """Give the buffers of outputs their lifetime class."""
        for buffer in self._buffers(node.args):
            if self.result.buffers[buffer].lifetime is Lifetime.INTERMEDIATE:
                self.result.buffers[buffer].lifetime = Lifetime.OUTPUT

    def _wait(self, node: Node, leaves: list[Any]) -> None:
        """Note the wait for a collective: it completes its argument and returns it.

        A wait that follows its collective at once is part of it. Another one is an op: whoever reads the result comes
        after it, so that it counts as a mutation, and until then the communication reads what the collective was
        given, so that the wait reads that, too.
        """
        (waited_for,) = nodes_in(node.args)
        completed = self.result.buffers_of[waited_for]
        self._lies_in(node, leaves, completed)
        started = waited_for
        while started.target is operator.getitem or is_view(started.target):
            (started,) = nodes_in(started.args)
        last = self.result.ops[-1] if self.result.ops else None
        if last is not None and last.node is started and is_repeatable_collective(started) and _is_read_waited(started):
            last.waits.append(node)
            return
        sent = self._buffers([started.args, started.kwargs]) if is_collective(started) else []
        self.result.ops.append(LoweredOp(node, list(dict.fromkeys((*completed, *sent))), [], list(completed)))

    def _projected(self, node: Node, leaves: list[Any]) -> tuple[BufferId, ...]:
        source: Any = node.args[0]
        index: Any = node.args[1]
        if leaves and all(isinstance(leaf, torch.Tensor) for leaf in leaves):
            return tuple(self._buffer_of(node.name, leaf, Lifetime.INTERMEDIATE) for leaf in leaves)
        values: Any = value_of(source)
        before = [leaf for value in values[:index] for leaf in pytree.tree_leaves(value) if _is_data(leaf)]
        return self.result.buffers_of[source][len(before) : len(before) + len(leaves)]

    def _buffers(self, arguments: Any) -> list[BufferId]:
        found: dict[BufferId, None] = {}
        for node in nodes_in(arguments):
            found.update(dict.fromkeys((*self.result.buffers_of[node], *self._shaped_by.get(node, ()))))
        return list(found)

    def _buffer_of(self, name: str, leaf: Any, lifetime: Lifetime) -> BufferId:
        if not isinstance(leaf, torch.Tensor):
            return self._add(LoweredBuffer(name, 0, lifetime, None))
        if leaf.layout != torch.strided:
            raise UnsupportedError(f"tensor '{name}' has layout {leaf.layout}; only strided ones are planned")
        if depends_on_values(leaf) and not is_limited(leaf):
            raise UnsupportedError(
                f"the size of tensor '{name}' depends on values, and nothing limits it; say so in the program, such as "
                "torch._check(count <= 4096)"
            )
        key = storage_key(leaf)
        if key not in self._storages:
            self._kept.append(leaf)
            self._storages[key] = self._add(LoweredBuffer(name, storage_bytes(leaf), lifetime, leaf.device))
        return self._storages[key]

    def _add(self, buffer: LoweredBuffer) -> BufferId:
        if buffer.name in self._names:
            buffer.name = f"{buffer.name}'{len(self.result.buffers)}"
        self._names.add(buffer.name)
        self.result.buffers.append(buffer)
        return len(self.result.buffers) - 1


def _is_data(leaf: Any) -> bool:
    return isinstance(leaf, torch.Tensor | torch.SymInt | torch.SymFloat | torch.SymBool | int | float | bool)


def _projects(node: Node) -> bool:
    source = node.args[0]
    return isinstance(source, Node) and isinstance(value_of(source), list | tuple)


def _is_read_waited(collective: Node) -> bool:
    """Tell whether all that reads what a collective writes waits for it first."""
    return all(
        waits_for_collective(user)
        or ((user.target is operator.getitem or is_view(user.target)) and _is_read_waited(user))
        for user in collective.users
    )


def _returns_nothing(node: Node) -> bool:
    overload = overload_of(node.target)
    return overload is not None and not returns_anything(overload)


def _check_storage(node: Node) -> None:
    if op_name(node.target) in _REPLACES_STORAGE:
        raise UnsupportedError(
            f"node '{node.name}' ({op_name(node.target)}) gives a tensor another storage; rewrite it with a new tensor"
        )
