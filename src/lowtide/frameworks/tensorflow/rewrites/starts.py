"""Prepare a graph for a run."""

from collections.abc import Mapping, Sequence
from typing import Any
from zlib import crc32

from lowtide.frameworks.tensorflow.graphs.attributes import (
    Shape,
    integer,
    of_bool,
    of_integer,
    of_shape,
    of_text,
    of_type,
)
from lowtide.frameworks.tensorflow.graphs.graph_def import GraphDef
from lowtide.frameworks.tensorflow.graphs.node_def import NodeDef
from lowtide.frameworks.tensorflow.operators import SEEDED
from lowtide.frameworks.tensorflow.rewrites.edited_nodes import free_name

_START = "lowtide/start/"


Starts = list[tuple[str, Mapping[str, Any]]]
"""Nodes that initialize variables, with their feeds."""


def with_variables(graph: GraphDef, captured: Mapping[str, tuple[int, Shape]]) -> GraphDef:
    """Return the graph with variables for its placeholders of captured variables."""
    if not captured:
        return graph
    nodes = list(graph.nodes)
    for place, node in enumerate(nodes):
        if node.name in captured:
            kind, shape = captured[node.name]
            named = {"dtype": of_type(kind), "shape": of_shape(shape), "shared_name": of_text(node.name)}
            nodes[place] = NodeDef.make(node.name, "VarHandleOp", (), named)
    return graph.with_nodes(nodes)


def with_seeds(graph: GraphDef) -> GraphDef:
    seeded = graph.with_nodes(_seeded(graph.nodes))
    for function in graph.functions.values():
        nodes = _seeded(function.nodes)
        seeded = seeded.with_function(function.with_nodes(nodes)) if nodes != list(function.nodes) else seeded
    return seeded


def _seeded(nodes: Sequence[NodeDef]) -> list[NodeDef]:
    return [
        node.with_attributes({"seed": of_integer(crc32(node.name.encode()) + 1)})
        if node.op in SEEDED and not integer(node.attribute("seed")) and not integer(node.attribute("seed2"))
        else node
        for node in nodes
    ]


def with_starts(graph: GraphDef, variables: Mapping[str, Any]) -> tuple[GraphDef, Starts, list[str]]:
    """Add nodes that initialize and read variables; return the graph, them and the read outputs."""
    names = {node.name for node in graph.nodes}
    nodes = {node.name: node for node in graph.nodes}
    made: list[NodeDef] = []
    starts: Starts = []
    ends: list[str] = []
    for name, value in variables.items():
        kind = of_type(integer(nodes[name].attribute("dtype")))
        source, start = free_name(f"{_START}{name}/value", names), free_name(f"{_START}{name}", names)
        made.append(NodeDef.make(source, "Placeholder", (), {"dtype": kind}))
        end = free_name(f"{_START}{name}/end", names)
        ends.append(f"{end}:0")
        if nodes[name].op == "VarHandleOp":
            made.append(NodeDef.make(end, "ReadVariableOp", [name], {"dtype": kind}))
            made.append(NodeDef.make(start, "AssignVariableOp", [name, source], {"dtype": kind}))
        else:
            unchecked = {"T": kind, "validate_shape": of_bool(False)}
            made.append(NodeDef.make(start, "Assign", [name, source], unchecked))
            made.append(NodeDef.make(end, "Identity", [name], {"T": kind}))
        starts.append((start, {f"{source}:0": value}))
    return graph.with_nodes([*graph.nodes, *made]), starts, ends
