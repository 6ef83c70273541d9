"""Nodes that fill variables before a graph runs for the first time."""

from collections.abc import Mapping
from typing import Any

from lowtide.frameworks.tensorflow.graphs.attributes import integer, of_bool, of_type
from lowtide.frameworks.tensorflow.graphs.graph_def import GraphDef
from lowtide.frameworks.tensorflow.graphs.node_def import NodeDef
from lowtide.frameworks.tensorflow.rewrites.names import free_name

_START = "lowtide/start/"


def with_starts(graph: GraphDef, variables: Mapping[str, Any]) -> tuple[GraphDef, list[tuple[str, Mapping[str, Any]]]]:
    """Return a graph with a node for each variable that fills it, and those nodes with what they are fed."""
    names = {node.name for node in graph.nodes}
    nodes = {node.name: node for node in graph.nodes}
    made: list[NodeDef] = []
    starts: list[tuple[str, Mapping[str, Any]]] = []
    for name, value in variables.items():
        kind = of_type(integer(nodes[name].attribute("dtype")))
        source, start = free_name(f"{_START}{name}/value", names), free_name(f"{_START}{name}", names)
        made.append(NodeDef.make(source, "Placeholder", (), {"dtype": kind}))
        if nodes[name].op == "VarHandleOp":
            made.append(NodeDef.make(start, "AssignVariableOp", [name, source], {"dtype": kind}))
        else:
            unchecked = {"T": kind, "validate_shape": of_bool(False)}
            made.append(NodeDef.make(start, "Assign", [name, source], unchecked))
        starts.append((start, {f"{source}:0": value}))
    return graph.with_nodes([*graph.nodes, *made]), starts
