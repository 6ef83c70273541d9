"""Names in files by ONNX Runtime that change the model when it is loaded again."""

from collections.abc import Mapping
from pathlib import Path

from onnx import GraphProto

from lowtide.core.files import write_bytes
from lowtide.frameworks.onnx.loading.load import load_model, load_whole_model
from lowtide.frameworks.onnx.operators.nodes import NewNames, all_nodes, subgraphs_of

_REMOVABLE = "InsertedPrecisionFreeCast_"


def settle_names(path: Path) -> None:
    """Rename values and nodes in a file of ONNX Runtime for which it is another model when loaded.

    Values of inner graphs that hide one of an outer graph are refused. A cast named as inserted on loading, around
    float16, is removed with its neighbor although they may round.
    """
    if not _settle(load_model(path).graph):
        return
    model = load_whole_model(path)
    _settle(model.graph)
    write_bytes(path, model.SerializeToString())


def _settle(graph: GraphProto) -> bool:
    names = NewNames(graph)
    inserted = [node for node in all_nodes(graph) if node.name.startswith(_REMOVABLE)]
    for node in inserted:
        node.name = names.new(f"Cast_{node.name.removeprefix(_REMOVABLE)}")
    return _rename_inside(graph, names, frozenset(), {}) or bool(inserted)


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
