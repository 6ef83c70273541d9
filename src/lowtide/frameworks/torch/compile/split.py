"""A planned training program, cut in two where the forward pass ends, in the form that AOTAutograd takes."""

from collections.abc import Sequence

from torch.fx import Graph, GraphModule, Node

from lowtide.frameworks.torch.internals.aot_autograd import (
    is_opaque_object,
    is_unchecked,
    output_descriptions,
    saved_description,
    set_output,
)
from lowtide.frameworks.torch.internals.nodes import is_symbol, outputs_of, symbol_bindings, symbols_in
from lowtide.frameworks.torch.internals.operators import is_view
from lowtide.frameworks.torch.rewrites.boundary import TURN_BACK


def split(planned: GraphModule, joint: GraphModule, n_forward_outputs: int) -> tuple[GraphModule, GraphModule]:
    """Return forward and backward modules of a planned joint graph; `joint` is the graph before planning.

    What the backward pass uses of the forward's values is saved, in AOTAutograd's order: the forward returns its own
    outputs, then tensors (those without version checks last), opaque objects and symbols; the backward takes symbols,
    tensors, opaque objects and all tangents. Both keep the order of the planned program.
    """
    nodes = list(planned.graph.nodes)
    (cut,) = (place for place, node in enumerate(nodes) if node.target is TURN_BACK)
    first, boundary = nodes[:cut], nodes[cut]
    used = {user.args[1]: user for user in boundary.users}
    second = [node for node in nodes[cut + 1 : -1] if node not in boundary.users]
    second = [*_views(first, second), *second]
    outputs, described = outputs_of(planned), output_descriptions(joint)
    symbols, saved = _crossing(planned.graph, first, second, outputs[n_forward_outputs:], list(used.values()))

    forward, copies = Graph(), dict[Node, Node]()
    for node in first:
        copies[node] = forward.node_copy(node, copies.__getitem__)
    set_output(
        forward,
        [_copied(value, copies) for value in [*outputs[:n_forward_outputs], *saved, *symbols]],
        [
            *described[:n_forward_outputs],
            *(saved_description(place, node) for place, node in enumerate([*saved, *symbols])),
        ],
    )

    backward, copies = Graph(), dict[Node, Node]()
    for node in [*symbols, *saved]:
        copies[node] = backward.placeholder(node.name)
        copies[node].meta = node.meta
    for index, value in enumerate(boundary.meta["val"]):
        tangent = backward.placeholder(used[index].name if index in used else f"tangents_{index + 1}")
        tangent.meta = used[index].meta if index in used else {"val": value}  # the caller gives what is not used, too
        copies[used.get(index, tangent)] = tangent
    for node in [*(node for node in first if node.op == "get_attr"), *second]:
        copies[node] = backward.node_copy(node, copies.__getitem__)
        copies[node].meta["autograd_backward"] = True
    set_output(
        backward, [_copied(value, copies) for value in outputs[n_forward_outputs:]], described[n_forward_outputs:]
    )
    return GraphModule(planned, forward), GraphModule(planned, backward)


def _views(first: Sequence[Node], second: Sequence[Node]) -> list[Node]:
    """Return, in order, the forward's views that the backward pass uses: it makes its own, of what is saved once."""
    wanted = {argument for node in second for argument in node.all_input_nodes}
    views: list[Node] = []
    for node in reversed(first):
        if node in wanted and is_view(node.target):
            views.append(node)
            wanted.update(node.all_input_nodes)
    return views[::-1]


def _crossing(
    graph: Graph, first: Sequence[Node], second: Sequence[Node], outputs: Sequence[object], tangents: Sequence[Node]
) -> tuple[list[Node], list[Node]]:
    """Return what crosses the boundary: symbols, those that bind a name first, and values in AOTAutograd's order."""
    wanted = {argument for node in second for argument in node.all_input_nodes}
    wanted.update(value for value in outputs if isinstance(value, Node))
    crossing = [node for node in first if node in wanted and node not in second and node.op != "get_attr"]
    derived = [node for node in crossing if is_symbol(node)]
    values = [node for node in crossing if not is_symbol(node)]
    bindings = symbol_bindings(graph)
    bound = dict.fromkeys(node for node in bindings.values() if node in derived)
    for node in [*derived, *values, *tangents]:
        bound.update(dict.fromkeys(bindings[symbol] for symbol in symbols_in(node) if symbol in bindings))
    symbols = [*bound, *(node for node in derived if node not in bound)]
    return symbols, sorted(values, key=lambda node: 2 if is_opaque_object(node) else int(is_unchecked(node)))


def _copied(value: object, copies: dict[Node, Node]) -> object:
    return copies[value] if isinstance(value, Node) else value
