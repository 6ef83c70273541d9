"""Translate a plan of kernels to FX nodes: copies of recomputed kernels, and copies to the host."""

import operator
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor
from torch.fx import Graph, GraphModule, Node

from lowtide.core.index_spaces import Place
from lowtide.frameworks.torch.compile.kernels.kernel_choice import KernelChoice
from lowtide.frameworks.torch.compile.kernels.recorded_pass import runs_once
from lowtide.frameworks.torch.emit.transfers import (
    COPY_TO_DEVICE,
    COPY_TO_HOST,
    HOST,
    ON_HOST,
    WAIT_FOR_COPY,
    like,
)
from lowtide.frameworks.torch.internals.aot_autograd import mark_must_save
from lowtide.frameworks.torch.internals.nodes import compute_fake, is_symbol, storages_of, value_of
from lowtide.frameworks.torch.internals.operators import call_in_inductor, store_in_inductor
from lowtide.frameworks.torch.reading.effects import RANDOM_STATE, is_random, mutated_arguments, overwritten_storages
from lowtide.frameworks.torch.reading.repeatable_draws import is_repeatable, repeatable_op
from lowtide.frameworks.torch.rewrites.boundary import TURN_BACK
from lowtide.frameworks.torch.rewrites.saved_values import is_mask_for_kernels
from lowtide.frameworks.torch.rewrites.stored_values import AS_STORED, STORED, laid_out, stored, stored_as_bytes

_AT_THE_END = 2**31


def save_reads_of_overwritten(graph: Graph) -> None:
    """Save results of ops that read inputs before the program overwrites them: a rerun would read new contents."""
    given = storages_of(*graph.find_nodes(op="placeholder"))
    overwritten = given & {storage for node in graph.nodes for storage in overwritten_storages(node)}
    for node in graph.nodes:
        if node.target is TURN_BACK:
            break
        reads = storages_of(*node.all_input_nodes) & overwritten
        if reads and storages_of(node).isdisjoint(overwritten):
            mark_must_save(node)


def follow_choice(whole: GraphModule, choice: KernelChoice) -> None:
    """Change a joined program in place, so that it recomputes and offloads as planned.

    Values within kernels are copied for each kernel: a shared copy would have to be stored. Results of nodes that must
    run once are saved.
    """
    graph = whole.graph
    states = _save_random_states(graph, choice)
    nodes = list(graph.nodes)
    (cut,) = (place for place, node in enumerate(nodes) if node.target is TURN_BACK)
    first = frozenset(nodes[:cut])
    second = [node for node in nodes[cut + 1 :] if node not in nodes[cut].users and node.op != "output"]
    places: dict[Node, Place] = {}
    for node in reversed(second):
        later = min((places[user] for user in node.users if user in places), default=_AT_THE_END)
        places[node] = choice.place_of.get(node.name, later)
    store_in_inductor(STORED)
    returned = _HostCopies(graph, choice, nodes[:cut], second).insert()
    copies = _Copies(graph, choice, first, states, dict(returned))
    for node in second:
        for source in node.all_input_nodes:
            made = copies.made(source, places[node], node)
            if made is not source:
                node.replace_input_with(source, made)
    _await_arrivals(graph, returned.values())
    graph.lint()
    whole.recompile()


def _save_random_states(graph: Graph, choice: KernelChoice) -> dict[Node, Node]:
    states: dict[Node, Node] = {}
    for node in list(graph.nodes):
        if node.target is TURN_BACK:
            break
        values = [node, *(user for user in node.users if user.target is operator.getitem)]
        if not is_repeatable(node) or not any(choice.is_recomputed(value.name) for value in values):
            continue
        repeatable = repeatable_op(node.target)
        call_in_inductor(repeatable, node.target)
        if isinstance(value_of(node), Tensor):
            with graph.inserting_before(node):
                draw = graph.call_function(repeatable, node.args, node.kwargs)
            node.target, node.args, node.kwargs = operator.getitem, (draw, 1), {}
        else:
            draw, node.target = node, repeatable
            for user in list(node.users):
                user.args = (draw, user.args[1] + 1)
        draw.meta = {**node.meta, "val": compute_fake(draw)}
        with graph.inserting_after(draw):
            state = graph.call_function(operator.getitem, (draw, 0))
        states[draw] = _valued(state)
    return states


def _valued(node: Node) -> Node:
    if value_of(node) is None:
        for source in node.all_input_nodes:
            _valued(source)
        node.meta["val"] = compute_fake(node)
    return node


@dataclass(frozen=True, slots=True, eq=False)
class _Copies:
    """Copies of forward nodes, one per node and recomputed run."""

    graph: Graph
    choice: KernelChoice
    first: frozenset[Node]
    states: Mapping[Node, Node]
    _known: dict[tuple[Place, Node], Node]

    def made(self, node: Node, reader: Place, before: Node) -> Node:
        """Return the node that makes a value for a reader; a recomputed one is copied before another node."""
        key = self._key(node, reader)
        if key is None:
            return node
        waiting = [key]
        while waiting:
            place, origin = current = waiting[-1]
            keys = [self._key(source, place) for source in origin.all_input_nodes]
            missing = [each for each in keys if each is not None and each not in self._known]
            if current in self._known or not missing:
                waiting.pop()
                if current not in self._known:
                    self._known[current] = self._copy(origin, place, before)
            else:
                waiting.extend(reversed(missing))
        return self._known[key]

    def _key(self, node: Node, reader: Place) -> tuple[Place, Node] | None:
        """Return the recomputed run and its node; None for the first run."""
        if node not in self.first or node.op != "call_function" or is_symbol(node):
            return None
        source = node.all_input_nodes[0] if node.target is operator.getitem else node
        if runs_once(source) or mutated_arguments(source) or (is_random(source) and source not in self.states):
            return None
        if node.name not in self.choice.buffer_of:
            return reader, node
        maker = self.choice.maker(node.name, reader)
        return None if maker is None else (maker, node)

    def _copy(self, node: Node, place: Place, before: Node) -> Node:
        def source(each: Node) -> Node:
            key = self._key(each, place)
            return each if key is None else self._known[key]

        with self.graph.inserting_before(before):
            copy = self.graph.node_copy(node, source)
            if node in self.states:
                copy.kwargs = {**copy.kwargs, RANDOM_STATE: self.states[node]}
            copy.meta = {**node.meta, "val": compute_fake(copy)}
            copy = self._as_first(copy, node)
            if node.name not in self.choice.stored_by_loops or node.target in (*AS_STORED, operator.getitem):
                return copy
            return _valued(stored_as_bytes(copy) if is_mask_for_kernels(node) else stored(copy))

    def _as_first(self, copy: Node, node: Node) -> Node:
        """Return a copy with the strides that Inductor chose for the first run."""
        value = value_of(copy)
        shape, strides = self.choice.forms.get(node.name, ([], []))
        if not isinstance(value, Tensor) or list(value.shape) != shape or list(value.stride()) == strides:
            return copy
        return _valued(laid_out(copy, strides))


@dataclass(frozen=True, slots=True, eq=False)
class _HostCopies:
    graph: Graph
    choice: KernelChoice
    first: Sequence[Node]
    second: Sequence[Node]

    def insert(self) -> dict[tuple[Place, Node], Node]:
        named = {node.name: node for node in self.first}
        returned: dict[tuple[Place, Node], Node] = {}
        for copy in self.choice.copies:
            value = named[copy.value]
            device = value_of(value).device
            on_host = self._insert(copy.leaves, value, COPY_TO_HOST, (value,), like(value_of(value), HOST))
            on_host.meta[ON_HOST] = True
            self._insert(copy.is_gone, on_host, WAIT_FOR_COPY, (on_host, value), None)
            for place in copy.returns:
                back = like(value_of(value), device)
                returned[place, value] = self._insert(place, on_host, COPY_TO_DEVICE, (on_host, device), back)
        return returned

    def _insert(self, place: Place, after: Node, target: Any, args: tuple[Any, ...], value: Tensor | None) -> Node:
        before = self._next_node(place)
        while before <= after:
            before = before.next
        with self.graph.inserting_before(before):
            call = self.graph.call_function(target, args)
        call.meta["val"] = value
        return call

    def _next_node(self, place: Place) -> Node:
        nodes = self.first if place <= self.choice.turn else self.second
        earlier = [node for node in nodes if self.choice.place_of.get(node.name, place) < place]
        return earlier[-1].next if earlier else nodes[0]


def _await_arrivals(graph: Graph, returned: Collection[Node]) -> None:
    """Wait for copies to the device before their first readers.

    Kernels join nodes from several places, so a reader may precede its copy; the copy then moves.
    """
    waiting, seen = set(returned), set[Node]()
    for node in list(graph.nodes):
        for copy in [each for each in node.all_input_nodes if each in waiting]:
            waiting.remove(copy)
            for each in (copy.args[0], copy):
                if each not in seen:
                    node.prepend(each)
            with graph.inserting_before(node):
                graph.call_function(WAIT_FOR_COPY, (copy, copy.args[0])).meta["val"] = None
        seen.add(node)
