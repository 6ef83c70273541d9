"""Nodes whose values have other names, in the graphs that they call too."""

from collections.abc import Mapping

from onnx import GraphProto, NodeProto

from lowtide.frameworks.onnx.operators.nodes import outer_names, subgraphs_of


def renamed(node: NodeProto, names: Mapping[str, str]) -> NodeProto:
    """Return a node with new names for what it reads and writes, by the old ones; the given one is changed.

    Its own name, if it has one, ends with the first new name that it writes, so that profiles tell its runs apart.
    """
    written = [names[name] for name in node.output if name in names]
    if node.name and written:
        node.name = f"{node.name}:{written[0]}"
    node.output[:] = [names.get(name, name) for name in node.output]
    _rename_reads(node, names)
    return node


def _rename_reads(node: NodeProto, names: Mapping[str, str]) -> None:
    node.input[:] = [names.get(name, name) for name in node.input]
    for _, graph in subgraphs_of(node):
        _rename_captured(graph, names)


def _rename_captured(graph: GraphProto, names: Mapping[str, str]) -> None:
    captured = {name: names[name] for name in outer_names(graph) if name in names}
    if not captured:
        return
    for node in graph.node:
        _rename_reads(node, captured)
    for output in graph.output:
        output.name = captured.get(output.name, output.name)
