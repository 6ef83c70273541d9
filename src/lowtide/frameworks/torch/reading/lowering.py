"""Lowering of FX nodes to ops and buffers, one per storage."""

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
from lowtide.frameworks.torch.internals.hints import depends_on_values, is_limited, is_symbolic
from lowtide.frameworks.torch.internals.nodes import nodes_in, value_of
from lowtide.frameworks.torch.internals.operators import is_view, op_name, overload_of, returns_anything
from lowtide.frameworks.torch.internals.symbolic_scalars import SYMBOLIC
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
from lowtide.frameworks.torch.reading.repeatable_draws import allocates_only, fills, finishes_draw
from lowtide.frameworks.torch.reading.scratch_reductions import kept_bytes
from lowtide.frameworks.torch.reading.workspaces import workspace_of

LASTS = "lowtide_lasts"
"""Marks a node whose result is kept to the end."""

HELD_ELSEWHERE = "lowtide_held_elsewhere"
"""Marks a node whose result may have other owners, so its storage is never reused."""

_REPLACES_STORAGE = {"resize_", "resize_as_", "set_", "set_data", "_resize_output_"}
_COPIES_STORAGE = {"copy", "slice_scatter", "select_scatter", "diagonal_scatter", "as_strided_scatter"}
"""Ops whose results have the strides and storage size of their first operand."""
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
    """Waits directly after a collective."""
    allocation: Node | None = None
    """The new tensor that a random draw fills."""
    finishes: list[Node] = field(default_factory=list[Node])
    """In-place ops directly after such a draw, like the scaling of a mask."""

    @property
    def kernels(self) -> list[Node]:
        return [self.node, *self.finishes]

    @property
    def nodes(self) -> list[Node]:
        """In execution order, without waits."""
        return self.kernels if self.allocation is None else [self.allocation, *self.kernels]


@dataclass(frozen=True, slots=True)
class InPlaceForm:
    """A form of an op that writes into an input's storage."""

    read: BufferId
    write: BufferId
    target: Any
    operand: Node
    out_argument: str | None
    """Keyword of the output; None for an overload that mutates its first argument."""


@dataclass(slots=True, eq=False)
class Lowered:
    """An aten graph as ops over buffers."""

    ops: list[LoweredOp] = field(default_factory=list[LoweredOp])
    buffers: list[LoweredBuffer] = field(default_factory=list[LoweredBuffer])
    buffers_of: dict[Node, tuple[BufferId, ...]] = field(default_factory=dict[Node, tuple[BufferId, ...]])
    """One buffer per tensor or scalar in a node's value."""
    in_place_forms: dict[LoweredOp, tuple[InPlaceForm, ...]] = field(
        default_factory=dict[LoweredOp, tuple[InPlaceForm, ...]]
    )
    bodies: dict[str, "Lowered"] = field(default_factory=dict[str, "Lowered"])
    repeats_draws: bool = False


def lower_body(module: GraphModule) -> Lowered:
    """Lower a called graph; the caller counts its inputs."""
    placeholders = module.graph.find_nodes(op="placeholder")
    return lower(module, [(node.name, Lifetime.PERSISTENT) for node in placeholders])


def lower_callee(caller: Lowered, module: GraphModule, name: str) -> Lowered:
    if name not in caller.bodies:
        caller.bodies[name] = lower_body(attribute(module, name))
    return caller.bodies[name]


def lower(module: GraphModule, inputs: Sequence[tuple[str, Lifetime]], *, repeats_draws: bool = False) -> Lowered:
    """Lower an aten graph with tensors in each node's `meta["val"]`.

    `inputs` has a name and a lifetime per placeholder. With `repeats_draws`, a draw that fills a new tensor is one op,
    which may be recomputed. Raises UnsupportedError for nodes that cannot be planned.
    """
    lowering = _Lowering(repeats_draws=repeats_draws)
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


class _Lowering:
    def __init__(self, *, repeats_draws: bool) -> None:
        self.result = Lowered(repeats_draws=repeats_draws)
        self._storages: dict[int, BufferId] = {}
        self._kept: list[Any] = []  # storage keys are addresses, so no storage may be freed meanwhile
        self._names: set[str] = set()
        self._constants: dict[str, Node] = {}
        self._shaped_by: dict[Node, tuple[BufferId, ...]] = {}

    def add_input(self, node: Node, name: str, value: Any, lifetime: Lifetime) -> None:
        self.result.buffers_of[node] = tuple(self._buffer_of(name, leaf, lifetime) for leaf in _data_in(value))

    def add_constant(self, node: Node, constant: Any) -> None:
        value = constant if value_of(node) is None else value_of(node)
        known = self._constants.setdefault(str(node.target), node)
        if known is node:
            self.add_input(node, node.name, value, Lifetime.PERSISTENT)
        else:
            self._place_in(node, _data_in(value), self.result.buffers_of[known])

    def _place_in(self, node: Node, leaves: list[Any], buffers: tuple[BufferId, ...]) -> None:
        self.result.buffers_of[node] = buffers
        for leaf, buffer in zip(leaves, buffers, strict=True):
            self._kept.append(leaf)
            self._storages[storage_key(leaf)] = buffer

    def add_call(self, node: Node) -> None:
        """Add a call, which is an op unless it returns only views."""
        result = self.result
        overload, name = overload_of(node.target), op_name(node.target)
        has_result = overload is None or returns_anything(overload)
        if "val" not in node.meta and has_result and node.target is not operator.getitem:
            raise UnsupportedError(f"node '{node.name}' has no tensor metadata; capture it with fake tensors")
        if name in _REPLACES_STORAGE:
            raise UnsupportedError(
                f"node '{node.name}' ({name}) replaces a tensor's storage; rewrite it with a new tensor"
            )
        leaves = _data_in(value_of(node))
        if waits_for_collective(node):
            self._wait(node, leaves)
            return
        known = len(result.buffers)
        source = node.args[0] if node.target is operator.getitem else None
        if isinstance(source, Node) and isinstance(value_of(source), list | tuple):
            result.buffers_of[node] = self._projected(node, source, leaves)
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
            kept = max(kept_bytes(node), self._copied_bytes(node) if name in _COPIES_STORAGE else 0)
            result.buffers[owned[0]].size_bytes = max(result.buffers[owned[0]].size_bytes, kept)
            self._enlarge(node, owned, known)
        if leaves and not writes and not mutates and not is_random(node) and not is_opaque(node):
            self._shaped_by[node] = tuple(buffer for buffer in reads if result.buffers[buffer].device is None)
            return
        if name in _READS_FORM_ONLY:
            reads = [buffer for buffer in reads if result.buffers[buffer].lifetime is Lifetime.INTERMEDIATE]
        op = LoweredOp(node, reads, writes, mutates)
        if not (result.repeats_draws and result.ops and self._joins_draw(op, result.ops[-1])):
            result.ops.append(op)

    def _joins_draw(self, op: LoweredOp, last: LoweredOp) -> bool:
        """Join an op that draws into the last one's new tensor, or changes that draw further."""
        node = op.node
        if node.prev is not last.nodes[-1] or op.writes or op.mutates != last.writes:
            return False
        if last.allocation is None and allocates_only(last.node) and fills(node):
            last.node, last.allocation = node, last.node
        elif last.allocation is not None and set(op.reads) == set(op.mutates) and finishes_draw(node):
            last.finishes.append(node)
        else:
            return False
        last.reads.extend(each for each in op.reads if each not in (*last.reads, *op.mutates))
        return True

    def _enlarge(self, node: Node, owned: tuple[BufferId, ...], known: int) -> None:
        """Apply the measured sizes of a library's results, which fake tensors may not know."""
        measured = workspace_of(node)
        if measured is None or len(measured.result_bytes) != len(owned):
            return
        for buffer, size in zip(owned, measured.result_bytes, strict=True):
            if buffer >= known:
                self.result.buffers[buffer].size_bytes = max(self.result.buffers[buffer].size_bytes, size)

    def _copied_bytes(self, node: Node) -> int:
        operand: Any = node.args[0] if node.args else None
        form = value_of(operand) if isinstance(operand, Node) else None
        if not isinstance(form, torch.Tensor) or (not is_symbolic(form) and 0 in form.stride()):
            return 0  # overlapping elements are copied alone
        return max(self.result.buffers[buffer].size_bytes for buffer in self.result.buffers_of[operand])

    def mark_outputs(self, node: Node) -> None:
        for buffer in self._buffers(node.args):
            if self.result.buffers[buffer].lifetime is Lifetime.INTERMEDIATE:
                self.result.buffers[buffer].lifetime = Lifetime.OUTPUT

    def _wait(self, node: Node, leaves: list[Any]) -> None:
        """Add the wait for a collective, which returns the completed argument.

        A wait directly after its collective joins that op. Any other mutates the result, so that readers come later,
        and reads the collective's operands, so that they stay alive.
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

    def _projected(self, node: Node, source: Node, leaves: list[Any]) -> tuple[BufferId, ...]:
        if leaves and all(isinstance(leaf, torch.Tensor) for leaf in leaves):
            return tuple(self._buffer_of(node.name, leaf, Lifetime.INTERMEDIATE) for leaf in leaves)
        before = len(_data_in(value_of(source)[: node.args[1]]))
        return self.result.buffers_of[source][before : before + len(leaves)]

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


def _data_in(value: Any) -> list[Any]:
    return [leaf for leaf in pytree.tree_leaves(value) if isinstance(leaf, (torch.Tensor, *SYMBOLIC, int, float))]


def _is_read_waited(collective: Node) -> bool:
    return all(
        waits_for_collective(user)
        or ((user.target is operator.getitem or is_view(user.target)) and _is_read_waited(user))
        for user in collective.users
    )
