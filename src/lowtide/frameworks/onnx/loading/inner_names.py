"""Unique names for values of inner graphs."""

from collections.abc import Mapping
from pathlib import Path

from onnx import GraphProto

from lowtide.core.files import write_bytes
from lowtide.frameworks.onnx.loading.load import load_model, load_whole_model
from lowtide.frameworks.onnx.operators.nodes import NewNames, subgraphs_of


def rename_hiding_values(path: Path) -> None:
    """Rename values in a file that have the name of a value of an outer graph.

    ONNX Runtime writes them for casts to and from float16, and refuses to load them.
    """
    if not _rename(load_model(path).graph):
        return
    model = load_whole_model(path)
    _rename(model.graph)
    write_bytes(path, model.SerializeToString())


def _rename(graph: GraphProto) -> bool:
    return _rename_inside(graph, NewNames(graph), frozenset(), {})


def _rename_inside(graph: GraphProto, names: NewNames, outer: frozenset[str], renamed: Mapping[str, str]) -> bool:
    made = {name for node in graph.node for name in node.output if name}
    own = {value.name for value in graph.input} | {tensor.name for tensor in graph.initializer} | made
    here = {name: new for name, new in renamed.items() if name not in own}
    hiding = {name: names.new(name) for name in sorted(made & outer)}
    here |= hiding
    for value in (*graph.output, *graph.value_info):
        value.name = here.get(value.name, value.name)
    changed = bool(hiding)
    for node in graph.node:
        for listed in (node.input, node.output):
            listed[:] = [here.get(name, name) for name in listed]
        for _, inner in subgraphs_of(node):
            changed |= _rename_inside(inner, names, outer | own, here)
    return changed
