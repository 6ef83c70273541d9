"""The two passes of a training step: forward, and backward with the optimizer's update."""

import operator
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node

from lowtide.core.errors import UnsupportedError
from lowtide.frameworks.torch.internals.aot_autograd import set_output
from lowtide.frameworks.torch.internals.inductor import Split
from lowtide.frameworks.torch.internals.joint_trace import JointTrace
from lowtide.frameworks.torch.internals.nodes import graph_module, is_symbol, outputs_of, storages_of
from lowtide.frameworks.torch.rewrites.boundary import TURN_BACK, needed_by

_COPY = torch.ops.aten.copy_.default
_REST = "lowtide_rest"


@dataclass(frozen=True, slots=True, eq=False)
class GivenGraph:
    """A captured graph for Inductor, with its example inputs."""

    module: GraphModule
    inputs: Sequence[Any]
    held: Collection[int] | None = None
    """Positions of the inputs that outlive a whole training step; None for other graphs."""
    trace: JointTrace = field(default_factory=JointTrace)

    @property
    def changes(self) -> dict[str, Any]:
        """Changes of Inductor's configuration. A step draws eager's random numbers."""
        return {} if self.held is None else {"fallback_random": True}

    def split(self, partition: Callable[..., tuple[GraphModule, GraphModule]]) -> Split | None:
        if self.held is None:
            return None
        held = self.held

        def passes(step: GraphModule, inputs: Sequence[Any]) -> tuple[GraphModule, GraphModule]:
            joint = joint_of_step(step, len(outputs_of(self.module)))
            n_constants = len(inputs) - len(self.inputs)  # the module's own tensors come first
            static = [*range(n_constants), *(n_constants + place for place in sorted(held))]
            return partition(joint, inputs, num_fwd_outputs=1, static_lifetime_input_indices=static)

        return passes


@dataclass(frozen=True, slots=True, eq=False)
class _Rest:
    results: Sequence[Any]
    overwritten: dict[Node, Node]
    late: Sequence[Node]
    """Nodes that read scalars, such as a learning rate."""
    given: Sequence[Node]


def joint_of_step(step: GraphModule, n_outputs: int) -> GraphModule:
    """Return a functional training step as AOTAutograd's partitioners take it.

    The forward pass returns the loss. Scalars, their dependents, and copies into inputs are left out until `add_rest`.
    Raises UnsupportedError if results are not the user program's, or the loss depends on a scalar.
    """
    results = outputs_of(step)
    late = _late_nodes(step.graph)
    if len(results) != n_outputs or not isinstance(results[0], Node) or results[0] in late:
        raise UnsupportedError("the step cannot be split at its loss; use compiler='eager'")
    copied = [node.all_input_nodes for node in late if _overwrites_input(node)]
    overwritten = {nodes[0]: nodes[-1] for nodes in copied}
    late = dict.fromkeys(node for node in late if not _overwrites_input(node))
    ends = [*results[1:], *overwritten.values(), *(source for node in late for source in node.all_input_nodes)]
    given = dict.fromkeys(end for end in ends if isinstance(end, Node) and end.op == "call_function")
    forward = needed_by([results[0]])
    graph, made = Graph(), dict[Node, Node]()
    for node in step.graph.nodes:
        if node.op != "output" and node not in late and not _overwrites_input(node):
            made[node] = graph.node_copy(node, made.__getitem__)
            if node.target is operator.getitem and node.args[0] in forward:
                forward.add(node)
            elif node.op == "call_function" and node not in forward:
                made[node].meta["partitioner_tag"] = "must_be_in_backward"
    returned = [end for end in given if end not in late]
    set_output(graph, [made[end] for end in (results[0], *returned)], [None] * (1 + len(returned)))
    joint = graph_module(step, graph)
    joint.meta[_REST] = _Rest(results[1:], overwritten, tuple(late), returned)
    return joint


def is_step(joint: GraphModule) -> bool:
    return _REST in joint.meta


def _late_nodes(graph: Graph) -> dict[Node, None]:
    late = dict[Node, None]()
    for node in graph.nodes:
        if node.op == "call_function" and (
            is_symbol(node) or _overwrites_input(node) or any(source in late for source in node.all_input_nodes)
        ):
            late[node] = None
    return late


def _overwrites_input(node: Node) -> bool:
    return node.target is _COPY and node.all_input_nodes[0].op == "placeholder"


def add_rest(whole: GraphModule, joint: GraphModule) -> None:
    """Add the nodes that `joint_of_step` left out."""
    rest: _Rest | None = joint.meta.get(_REST)
    if rest is None:
        return
    graph = whole.graph
    inputs = {node.name: node for node in graph.find_nodes(op="placeholder")}
    loss, *returned = outputs_of(whole)
    made = dict(zip(rest.given, returned, strict=True))

    def found(node: Node) -> Node:
        return inputs[node.name] if node.op == "placeholder" else made[node]

    (end,) = graph.find_nodes(op="output")
    graph.erase_node(end)
    for node in rest.late:
        made[node] = graph.node_copy(node, found)
    for given, value in rest.overwritten.items():
        copy = graph.call_function(_COPY, (found(given), found(value)))
        copy.meta["val"] = given.meta["val"]
    results = [loss, *(found(result) if isinstance(result, Node) else result for result in rest.results)]
    set_output(graph, results, [None] * len(results))
    overwrite_early(graph)


def overwrite_early(graph: Graph) -> None:
    """Overwrite inputs right after the last node that needs old or new contents."""
    places = {node: place for place, node in enumerate(graph.nodes)}
    (turn,) = (node for node in places if node.target is TURN_BACK)
    readers: dict[int, list[Node]] = {}
    copies = list(filter(_overwrites_input, places))
    for node in places:
        if node not in copies and node.op == "call_function":
            for storage in storages_of(*node.all_input_nodes):
                readers.setdefault(storage, []).append(node)
    for copy in copies:
        given, value = copy.all_input_nodes
        before = [turn, value, *(node for storage in storages_of(given) for node in readers.get(storage, []))]
        max(before, key=places.__getitem__).append(copy)
