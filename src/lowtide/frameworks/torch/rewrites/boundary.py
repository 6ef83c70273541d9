"""The end of a joint graph's forward pass as an op (`InsertBoundary`)."""

import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from torch.fx import Graph, GraphModule, Node

from lowtide.frameworks.torch.internals.aot_autograd import inputs_overwritten_later
from lowtide.frameworks.torch.internals.nodes import graph_module, is_symbol, outputs_of, value_of
from lowtide.frameworks.torch.internals.operators import define_operator
from lowtide.frameworks.torch.reading.effects import overwritten_nodes
from lowtide.frameworks.torch.reading.lowering import HELD_ELSEWHERE
from lowtide.frameworks.torch.rewrites.rewrite import Preserves, Rewrite

TURN_BACK = define_operator("turn_back(Tensor[] outputs, Tensor(a!)[] overwritten) -> Tensor[]")
"""Never runs: the program is split here. It keeps its place among random draws and collectives.

Between the passes, AOTAutograd overwrites inputs, unless the graph does it.
"""

_OF_BACKWARD = ("is_backward", "must_be_in_backward")


def is_tangent(node: Node) -> bool:
    """Return whether a node is a tangent, where the backward pass starts."""
    return node.op == "placeholder" and "tangents" in str(node.target)


@dataclass(frozen=True)
class InsertBoundary(Rewrite[Node]):
    """Insert an op between the passes of a joint graph, which returns the tangents.

    It reads the forward outputs, and overwrites the inputs that the runtime overwrites between the passes.
    """

    name = "insert-boundary"
    source = "The actions of AOTAutograd's runtime between the two passes, as an op."
    preserves = Preserves("the tangents, which an op returns instead of the caller", inputs=False)
    n_outputs: int

    def sites(self, module: GraphModule) -> Sequence[Node]:
        ends = module.graph.find_nodes(op="output")
        return [] if module.graph.find_nodes(op="call_function", target=TURN_BACK) else list(ends)

    def apply(self, module: GraphModule, sites: Sequence[Node]) -> GraphModule:
        outputs = outputs_of(module)[: self.n_outputs]
        forward = _forward_nodes(module.graph, [leaf for leaf in outputs if isinstance(leaf, Node)])
        graph, made = Graph(), dict[Node, Node]()
        for node in module.graph.nodes:
            if node in forward:
                made[node] = graph.node_copy(node, made.__getitem__)
        tangents = [node for node in module.graph.find_nodes(op="placeholder") if is_tangent(node)]
        made.update(turn_back(graph, module, self.n_outputs, tangents, made))
        for node in module.graph.nodes:
            if node not in made:
                made[node] = graph.node_copy(node, made.__getitem__)
        return graph_module(module, graph)


def turn_back(
    graph: Graph, source: GraphModule, n_forward_outputs: int, tangents: Sequence[Node], made: Mapping[Node, Node]
) -> dict[Node, Node]:
    """Append the op to a copy of a forward pass, and return a node for each tangent.

    `made` maps nodes of `source` to copies. Autograd owns the tangents: hooks and callers of `backward` may read them.
    """
    outputs = outputs_of(source)[:n_forward_outputs]
    ends = dict.fromkeys(made[leaf] for leaf in outputs if isinstance(leaf, Node))
    for node in graph.nodes:
        ends.update(dict.fromkeys(overwritten_nodes(node)))
        if is_symbol(node):
            ends[node] = None  # otherwise the tensor of the size would be saved
    overwritten = [made[node] for node in inputs_overwritten_later(source, n_forward_outputs)]
    boundary = graph.call_function(TURN_BACK, (list(ends), overwritten))
    boundary.meta |= {"val": [value_of(node) for node in tangents], HELD_ELSEWHERE: True}
    given: dict[Node, Node] = {}
    for index, node in enumerate(tangents):
        given[node] = graph.create_node("call_function", operator.getitem, (boundary, index), name=node.name)
        given[node].meta = dict(node.meta)
    return given


def needed_by(ends: Sequence[Node]) -> set[Node]:
    needed, waiting = set[Node](), list(ends)
    while waiting:
        node = waiting.pop()
        if node not in needed:
            needed.add(node)
            waiting.extend(node.all_input_nodes)
    return needed


def _forward_nodes(graph: Graph, outputs: list[Node]) -> dict[Node, None]:
    """Return the forward nodes in order: those that outputs need, those traced in it, and sizes."""
    needed = needed_by(outputs)
    forward: dict[Node, None] = {}
    for node in graph.nodes:
        traced_in_forward = node.meta.get("partitioner_tag") not in _OF_BACKWARD and not is_tangent(node)
        comes_first = (traced_in_forward or is_symbol(node)) and all(
            source in forward for source in node.all_input_nodes
        )
        if node.op != "output" and (node in needed or comes_first):
            forward[node] = None
    return forward
