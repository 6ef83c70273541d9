"""Lowering of FX nodes to ops and buffers: one buffer per storage, and no ops for views."""

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
from lowtide.frameworks.torch.reading.scratch_reductions import kept_bytes

LASTS = "lowtide_lasts"
"""Marks a node whose result is kept to the end, so that its readers can be recomputed at any time."""

HELD_ELSEWHERE = "lowtide_held_elsewhere"
"""Marks a node whose result may have other owners, so that no op may take over its storage."""

_REPLACES_STORAGE = {"resize_", "resize_as_", "set_", "set_data", "_resize_output_"}
_READS_FORM_ONLY = {"sym_size", "sym_stride", "sym_numel", "sym_storage_offset", "_assert_tensor_metadata"}


@dataclass(slots=True)
class LoweredBuffer:
    """A storage."""

    name: str
    size_bytes: int
    lifetime: Lifetime
    device: torch.device | None
    held_elsewhere: bool = False


@dataclass(slots=True, eq=False)
class LoweredOp:
    """A node that allocates or computes."""

    node: Node
    reads: list[BufferId]
    writes: list[BufferId]
    mutates: list[BufferId]
    waits: list[Node] = field(default_factory=list[Node])
    """Waits that directly follow a collective. They are part of its op and return its result."""


@dataclass(frozen=True, slots=True)
class InPlaceForm:
    """A form of an op whose output takes over the storage of an input."""

    read: BufferId
    write: BufferId
    target: Any
    operand: Node
    """The input whose storage the output takes over."""
    out_argument: str | None
    """Keyword of the output tensor; None for an in-place overload, which mutates its first argument."""


@dataclass(slots=True, eq=False)
class Lowered:
    """An aten graph as ops over buffers. Its other nodes are inputs, views, and elements of tuples."""

    ops: list[LoweredOp] = field(default_factory=list[LoweredOp])
    buffers: list[LoweredBuffer] = field(default_factory=list[LoweredBuffer])
    buffers_of: dict[Node, tuple[BufferId, ...]] = field(default_factory=dict[Node, tuple[BufferId, ...]])
    """The buffers of a node's value, one per tensor or scalar."""
    in_place_forms: dict[LoweredOp, tuple[InPlaceForm, ...]] = field(
        default_factory=dict[LoweredOp, tuple[InPlaceForm, ...]]
    )
    """Cache of `in_place_forms`."""
    bodies: dict[str, "Lowered"] = field(default_factory=dict[str, "Lowered"])
    """Cache of `lower_callee`: the lowered form of each called graph."""


def lower_body(module: GraphModule) -> Lowered:
    """Lower a graph that an op calls, with persistent inputs, because the caller counts them."""
    placeholders = module.graph.find_nodes(op="placeholder")
    return lower(module, [(node.name, Lifetime.PERSISTENT) for node in placeholders])


def lower_callee(caller: Lowered, module: GraphModule, name: str) -> Lowered:
    """Return the lowered form of a graph that an op of `module` calls. Cached in `caller`."""
    if name not in caller.bodies:
        caller.bodies[name] = lower_body(attribute(module, name))
    return caller.bodies[name]


def lower(module: GraphModule, inputs: Sequence[tuple[str, Lifetime]]) -> Lowered:
    """Lower an aten graph whose nodes carry fake or real tensors in `meta["val"]`.

    `inputs` has a name and a lifetime class per placeholder. Raises UnsupportedError for calls of modules or methods,
    nodes without metadata, and ops that replace a tensor's storage.
    """
    lowering = _Lowering()
    remaining = iter(inputs)
    for node in module.graph.nodes:
        if node.op == "placeholder":
            name, lifetime = next(remaining)
            lowering.add_input(node, name, value_of(node), lifetime)
        elif node.op == "get_attr":
            lowering.add_constant(node, attribute(module, str(node.target)))
        elif node.op == "call_function":
            lowering.add_call(node)
        elif node.op == "output":
            lowering.mark_outputs(node)
        else:
            raise UnsupportedError(
                f"node '{node.name}' is a {node.op}; pass (function, example inputs) to capture it as aten ops"
            )
    return lowering.result


def nodes_in(arguments: Any) -> list[Node]:
    """Return the distinct nodes in nested arguments, in order."""
    found: dict[Node, None] = {}
    map_nodes(arguments, found.setdefault)
    return list(found)


class _Lowering:
    def __init__(self) -> None:
        self.result = Lowered()
        self._storages: dict[int, BufferId] = {}
        self._kept: list[Any] = []  # storage keys are addresses, so no storage may be freed meanwhile
        self._names: set[str] = set()
        self._constants: dict[str, Node] = {}
        """The first node of each constant."""
        self._shaped_by: dict[Node, tuple[BufferId, ...]] = {}
        """The symbolic scalars in the shape of each view. Readers of the view also read them."""

    def add_input(self, node: Node, name: str, value: Any, lifetime: Lifetime) -> None:
        """Add the buffers of a value that exists from the start."""
        self.result.buffers_of[node] = tuple(
            self._buffer_of(name, leaf, lifetime) for leaf in pytree.tree_leaves(value) if _is_data(leaf)
        )

    def add_constant(self, node: Node, constant: Any) -> None:
        """Add the buffers of a constant, or reuse them if an earlier node refers to it."""
        value = constant if value_of(node) is None else value_of(node)
        known = self._constants.setdefault(str(node.target), node)
        if known is node:
            self.add_input(node, node.name, value, Lifetime.PERSISTENT)
        else:
            leaves = [leaf for leaf in pytree.tree_leaves(value) if _is_data(leaf)]
            self._place_in(node, leaves, self.result.buffers_of[known])

    def _place_in(self, node: Node, leaves: list[Any], buffers: tuple[BufferId, ...]) -> None:
        """Assign existing buffers to a node's value and to its storages."""
        self.result.buffers_of[node] = buffers
        for leaf, buffer in zip(leaves, buffers, strict=True):
            self._kept.append(leaf)
            self._storages[storage_key(leaf)] = buffer

    def add_call(self, node: Node) -> None:
        """Add a call: as an op, unless it only returns views of existing storages."""
        result = self.result
        if "val" not in node.meta and not _returns_nothing(node) and node.target is not operator.getitem:
            raise UnsupportedError(f"node '{node.name}' has no tensor metadata; capture it with fake tensors")
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

    def mark_outputs(self, node: Node) -> None:
        """Give the buffers of outputs the lifetime class OUTPUT."""
        for buffer in self._buffers(node.args):
            if self.result.buffers[buffer].lifetime is Lifetime.INTERMEDIATE:
                self.result.buffers[buffer].lifetime = Lifetime.OUTPUT

    def _wait(self, node: Node, leaves: list[Any]) -> None:
        """Add the wait for a collective, which completes its argument and returns it.

        A wait directly after its collective is part of that op. Any other wait is an op that mutates the result, so
        that readers come after it, and reads the operands of the collective, so that they stay alive until then.
        """
        (waited_for,) = nodes_in(node.args)
        completed = self.result.buffers_of[waited_for]
        self._place_in(node, leaves, completed)
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
                f"the size of tensor '{name}' depends on values and has no upper bound; "
                "add one to the program, such as torch._check(count <= 4096)"
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
    """Return whether all readers of a collective's result wait for it first."""
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
            f"node '{node.name}' ({op_name(node.target)}) replaces a tensor's storage; rewrite it with a new tensor"
        )
