"""The two passes of a training program: cut a planned program, or join two passes."""

from collections.abc import Sequence
from operator import attrgetter
from typing import Any

from torch.fx import Graph, GraphModule, Node

from lowtide.core.errors import UnsupportedError
from lowtide.frameworks.torch.internals.aot_autograd import (
    is_opaque_object,
    is_unchecked,
    output_descriptions,
    saved_description,
    set_output,
)
from lowtide.frameworks.torch.internals.nodes import (
    compute_fake,
    graph_module,
    is_symbol,
    outputs_of,
    storages_of,
    symbol_bindings,
    symbols_in,
)
from lowtide.frameworks.torch.internals.operators import is_view
from lowtide.frameworks.torch.rewrites.boundary import TURN_BACK, is_tangent, turn_back


def split(planned: GraphModule, joint: GraphModule, n_forward_outputs: int) -> tuple[GraphModule, GraphModule]:
    """Return the forward and backward modules of a planned program; `joint` is the graph before planning.

    AOTAutograd fixes the order of values. The forward pass returns its outputs, then saved tensors (those without
    version checks last), opaque objects and symbols. The backward pass takes symbols, tensors, opaque objects and all
    tangents.
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
        tangent.meta = used[index].meta if index in used else {"val": value}  # unused tangents are passed, too
        copies[used.get(index, tangent)] = tangent
    for node in [*(node for node in first if node.op == "get_attr"), *second]:
        copies[node] = backward.node_copy(node, copies.__getitem__)
        copies[node].meta["autograd_backward"] = True
    set_output(
        backward, [_copied(value, copies) for value in outputs[n_forward_outputs:]], described[n_forward_outputs:]
    )
    return graph_module(planned, forward), graph_module(planned, backward)


def _views(first: Sequence[Node], second: Sequence[Node]) -> list[Node]:
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
    """Return the symbols (binding ones first) and values that cross the boundary."""
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


def rejoin(forward: GraphModule, backward: GraphModule, n_forward_outputs: int) -> GraphModule:
    """Return forward pass, boundary and backward pass as one graph with recomputed ops as plain ops.

    A recomputed op has the fake tensors of its first run. It would look like a view of the first result and take no
    memory, so it gets new storage.
    """
    graph, made = Graph(), dict[Node, Node]()
    for node in forward.graph.nodes:
        if node.op != "output":
            made[node] = graph.node_copy(node, made.__getitem__)
    results = outputs_of(forward)
    saved = results[n_forward_outputs:]
    symbols = [node for node in saved if is_symbol(node)]
    inputs = backward.graph.find_nodes(op="placeholder")
    tangents = [node for node in inputs if is_tangent(node)]
    crossing = [*symbols, *(node for node in saved if node not in symbols)]
    given = [node for node in inputs if node not in tangents]
    if len(given) != len(crossing):
        raise UnsupportedError("its backward pass has inputs of its own, such as random seeds or hooks")
    for node, source in zip(given, crossing, strict=True):
        made[node] = made[source]
    made.update(turn_back(graph, forward, n_forward_outputs, tangents, made))
    known = storages_of(*graph.nodes)
    for node in backward.graph.nodes:
        if node.op not in ("placeholder", "output"):
            made[node] = copied = graph.node_copy(node, made.__getitem__)
            if known & storages_of(copied) - storages_of(*copied.all_input_nodes) and node.op == "call_function":
                copied.meta["val"] = compute_fake(copied)  # recomputed, or a view of a recomputed result
            known |= storages_of(copied)
    values = [*results[:n_forward_outputs], *outputs_of(backward)]
    set_output(graph, [made[value] if isinstance(value, Node) else value for value in values], [None] * len(values))
    return graph_module({**_attributes_of(forward), **_attributes_of(backward)}, graph)


def _attributes_of(module: GraphModule) -> dict[str, Any]:
    names = [str(node.target) for node in module.graph.find_nodes(op="get_attr")]
    return {name: attrgetter(name)(module) for name in names}
