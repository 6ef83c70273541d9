"""Rebuild a program in the order of a plan."""

import operator
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

import numpy as np
import torch
from torch.fx import Graph, GraphModule, Node

from lowtide.core.errors import PlanError, UnsupportedError
from lowtide.core.index_spaces import BufferId, OpId
from lowtide.engine.plan import CopyIn, CopyOut, Free, Plan, Run, StepKind
from lowtide.frameworks.torch.emit.state_copies import STATE_TO_DEVICE, StateEmission
from lowtide.frameworks.torch.emit.transfers import CopyEmission
from lowtide.frameworks.torch.internals.nodes import is_symbol, map_arguments, storages_of, value_of
from lowtide.frameworks.torch.internals.runtime import box_inputs
from lowtide.frameworks.torch.reading.captured import attribute
from lowtide.frameworks.torch.reading.effects import (
    is_collective,
    is_random,
    keeps_order,
    overwritten_storages,
    touched_storages,
)
from lowtide.frameworks.torch.reading.in_place import in_place_forms
from lowtide.frameworks.torch.reading.lowering import InPlaceForm, Lowered, LoweredOp, lower_callee
from lowtide.frameworks.torch.reading.repeatable_draws import (
    COPIED_GENERATOR,
    SAVED_GENERATOR,
    can_draw_again,
    device_of_draw,
    draw_again,
)


def emit(module: GraphModule, lowered: Lowered, plan: Plan, *, boxed: bool) -> GraphModule:
    """Return a module that runs a plan's ops and in-place pairs, and drops each tensor at its last use.

    Steps that read, overwrite or free a buffer wait for its copies and collectives. With `boxed`, the module takes one
    list of tensors and empties it, to free inputs, and changes inputs as late as possible.
    """
    runs = np.bincount(plan.targets[plan.kinds == StepKind.RUN], minlength=len(lowered.ops))
    repeated = (lowered.ops[op].node for op in np.flatnonzero(runs > 1).tolist())
    emitter = _Emitter(module, lowered, set(filter(can_draw_again, repeated)))
    for step in plan.steps():
        match step:
            case Run(op, pairs):
                emitter.run(op, pairs)
            case Free(buffer, space):
                emitter.free(buffer, at_home=space is None)
            case CopyOut(buffer):
                emitter.copy_out(buffer)
            case CopyIn(buffer):
                emitter.copy_in(buffer)
    graph = emitter.finish()
    if boxed:
        delay_changes(graph)
        box_inputs(graph)
    emitted = GraphModule(module, graph, class_name="Planned")
    for name, callee in plan.callees.items():
        body = attribute(module, name)
        emitted.set_submodule(name, emit(body, lower_callee(lowered, module, name), callee, boxed=False))
    return emitted


class _Emitter:
    def __init__(self, module: GraphModule, lowered: Lowered, repeated_draws: Collection[Node]) -> None:
        self._source = module.graph
        self._lowered = lowered
        self._target = Graph()
        self._made: dict[Node, Node] = {}
        self._is_op = {node for op in lowered.ops for node in op.nodes}
        self._draws = DrawEmission(self._target, repeated_draws)
        self._views_of: dict[BufferId, list[Node]] = {}
        self._copies = CopyEmission(self._target)
        self._states = StateEmission(self._target)
        self._spanning = _spanning(lowered)
        self._waits = PendingWaits(self._value)
        for node in self._source.find_nodes(op="placeholder"):
            self._made[node] = self._target.node_copy(node)

    def run(self, op: OpId, pairs: tuple[tuple[BufferId, BufferId], ...]) -> None:
        lowered_op = self._lowered.ops[op]
        node = lowered_op.node
        self._await(lowered_op, [read for read, _ in pairs])
        if node in self._made:
            self._forget_views(lowered_op.writes)
        form = next((f for f in in_place_forms(lowered_op, self._lowered) if (f.read, f.write) in pairs), None)
        if lowered_op.allocation is not None:
            self._fill(lowered_op)
        elif form is None:
            self._made[node] = self._draws.copied(node, self._value)
        else:
            self._made[node] = self._copy_in_place(node, form)
        for user in node.users:
            if _is_element(user, node) and user.users:
                self._made[user] = self._target.node_copy(user, self._value)
        self._waits.start(lowered_op)
        self._states.start(lowered_op, self._made[node])

    def _fill(self, op: LoweredOp) -> None:
        for node in op.nodes:
            self._made[node] = self._draws.copied(node, self._value)
        self._made.update(dict.fromkeys(op.nodes, self._made[op.nodes[-1]]))

    def copy_out(self, buffer: BufferId) -> None:
        if buffer not in self._spanning:
            name = self._lowered.buffers[buffer].name
            raise UnsupportedError(f"the plan copies '{name}' to the host, which no op alone writes; do not offload it")
        self._waits.before_change([buffer])
        self._copies.copy_out(buffer, self._value(self._spanning[buffer][0]))

    def copy_in(self, buffer: BufferId) -> None:
        device = self._lowered.buffers[buffer].device or torch.device("cpu")
        self._forget_views([buffer])
        self._made.update(dict.fromkeys(self._spanning[buffer], self._copies.copy_in(buffer, device)))

    def free(self, buffer: BufferId, *, at_home: bool) -> None:
        self._waits.before_change([buffer])
        self._states.before_change([buffer])
        if not self._copies.is_on_host(buffer):
            return
        if at_home:
            self._copies.await_arrival(buffer)
            self._copies.await_departure(buffer)
            for node in self._spanning[buffer]:
                self._made.pop(node, None)
            self._forget_views([buffer])
        else:
            self._copies.free_copy(buffer)

    def _await(self, op: LoweredOp, taken_over: list[BufferId]) -> None:
        changed = [*op.writes, *op.mutates, *taken_over]
        for buffer in (*op.reads, *op.mutates):
            self._copies.await_arrival(buffer)
        for buffer in changed:
            self._copies.await_departure(buffer)
        self._states.before_use([*op.reads, *op.mutates])
        self._states.before_change(changed)
        if keeps_order(op.node) and not (is_collective(op.node) or is_random(op.node)):
            self._waits.all()
        else:
            self._waits.before_change(changed)

    def finish(self) -> Graph:
        self._waits.all()
        self._states.all()
        self._copies.await_all_arrivals()
        (output,) = self._source.find_nodes(op="output")
        self._target.node_copy(output, self._value)
        compute_only_wanted(self._target)
        return self._target

    def _copy_in_place(self, node: Node, form: InPlaceForm) -> Node:
        args, kwargs = map_arguments(node, self._value)
        if form.out_argument is not None:
            kwargs = {**kwargs, form.out_argument: self._value(form.operand)}
        copied = self._target.call_function(form.target, args, kwargs)
        copied.meta = dict(node.meta)
        return copied

    def _value(self, node: Node) -> Node:
        waiting = [node]
        while waiting:
            last = waiting[-1]
            missing = [argument for argument in last.all_input_nodes if argument not in self._made]
            if last in self._made or not missing:
                waiting.pop()
                if last not in self._made:
                    self._make_view(last)
            else:
                waiting.extend(missing)
        return self._made[node]

    def _make_view(self, node: Node) -> None:
        if node in self._is_op:
            raise PlanError(f"the plan reads '{node.name}' before it runs; verify the plan")
        self._made[node] = self._target.node_copy(node, self._made.__getitem__)
        for buffer in self._lowered.buffers_of[node]:
            self._views_of.setdefault(buffer, []).append(node)

    def _forget_views(self, buffers: list[BufferId]) -> None:
        for buffer in buffers:
            for view in self._views_of.pop(buffer, ()):
                self._made.pop(view, None)


def _spanning(lowered: Lowered) -> dict[BufferId, Sequence[Node]]:
    """Return the nodes or the element that span each buffer with exactly one writer."""
    overwritten = {buffer for op in lowered.ops for buffer in op.mutates}
    found: dict[BufferId, Sequence[Node]] = {}
    for op in lowered.ops:
        for node in (op.node, *(user for user in op.node.users if _is_element(user, op.node))):
            if isinstance(value_of(node), torch.Tensor):
                spanning = op.nodes if node is op.node else [node]
                found.update((buffer, spanning) for buffer in lowered.buffers_of[node] if buffer in op.writes)
    for buffer in overwritten:
        found.pop(buffer, None)
    return found


def _is_element(user: Node, node: Node) -> bool:
    return user.target is operator.getitem and user.args[0] is node


class PendingWaits:
    """Started collectives whose inputs must not be freed or overwritten, nor results dropped."""

    def __init__(self, wait: Callable[[Node], object]) -> None:
        self._wait = wait
        self._started: dict[Node, LoweredOp] = {}

    def start(self, op: LoweredOp) -> None:
        if op.waits:
            self._started[op.node] = op
            if value_of(op.waits[0]).device.type == "cpu":  # gloo allocates memory while it runs
                self.all()

    def before_change(self, buffers: Collection[BufferId]) -> None:
        if self._started and buffers:
            self._end(op for op in self._started.values() if not {*op.reads, *op.writes}.isdisjoint(buffers))

    def all(self) -> None:
        self._end(self._started.values())

    def _end(self, ops: Iterable[LoweredOp]) -> None:
        for op in list(ops):
            for wait in op.waits:
                self._wait(wait)
            del self._started[op.node]


class DrawEmission:
    """Copies of nodes, where draws that run several times save the generator first."""

    def __init__(self, graph: Graph, repeated: Collection[Node]) -> None:
        self._graph = graph
        self._repeated = repeated
        self._saved: dict[Node, Node] = {}

    def copied(self, node: Node, value: Callable[[Node], Node]) -> Node:
        if node not in self._repeated:
            return self._graph.node_copy(node, value)
        if node not in self._saved:
            self._saved[node] = self._graph.call_function(SAVED_GENERATOR, (device_of_draw(node),))
            return self._graph.node_copy(node, value)
        generator = self._graph.call_function(COPIED_GENERATOR, (self._saved[node],))
        copied = self._graph.node_copy(node, value)
        copied.target, keyword = draw_again(node.target)
        copied.kwargs = {**copied.kwargs, keyword: generator}
        return copied


_MASK = 10


def compute_only_wanted(graph: Graph) -> None:
    """Compute only a convolution's gradients that are read. O(nodes).

    PyTorch's kernels are separate, so others stay bit-equal.
    """
    for node in graph.find_nodes(op="call_function", target=torch.ops.aten.convolution_backward.default):
        elements = list(node.users)
        if len(node.args) <= _MASK or any(user.target is not operator.getitem for user in elements):
            continue
        taken = {user.args[1] for user in elements if user.users}
        wanted = [asked and place in taken for place, asked in enumerate(node.args[_MASK])]
        if not any(wanted) or wanted == list(node.args[_MASK]):
            continue
        node.update_arg(_MASK, wanted)
        for user in elements:
            if not user.users:
                graph.erase_node(user)
        values: tuple[Any, ...] | None = node.meta.get("val")
        if values is not None:
            pairs = zip(values, wanted, strict=True)
            node.meta["val"] = tuple(value if is_wanted else None for value, is_wanted in pairs)


def delay_changes(graph: Graph) -> None:
    """Move ops that only overwrite inputs, and scalar ops, directly before the next dependent op.

    A plan may decay weights long before gradients are known; an exception between would leave parameters half updated.
    Memory stays the same.
    """
    copies = graph.find_nodes(op="call_function", target=STATE_TO_DEVICE)
    inputs = storages_of(*graph.find_nodes(op="placeholder"), *copies)
    following: dict[int, Node] = {}
    for node in reversed(list(graph.nodes)):
        if node.op != "call_function":
            continue
        touched = touched_storages(node)
        if is_symbol(node) or (touched and touched <= inputs and touched == overwritten_storages(node)):
            later = {*node.users, *(following[key] for key in touched if key in following)}
            if later:
                min(later).prepend(node)
        for key in touched:
            following[key] = node
