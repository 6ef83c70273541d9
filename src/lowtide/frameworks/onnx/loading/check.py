"""What makes an ONNX model a valid program, as far as planning depends on it."""

from collections.abc import Iterable, Sequence

from onnx import GraphProto, ModelProto, NodeProto

from lowtide.core.errors import MalformedInputError
from lowtide.frameworks.onnx.loading.check_functions import check_functions
from lowtide.frameworks.onnx.loading.check_operators import check_operators
from lowtide.frameworks.onnx.loading.check_text import check_text
from lowtide.frameworks.onnx.operators.nodes import describe_node, input_names, subgraphs_of, weight_names


def check_model(model: ModelProto, where: str) -> None:
    """Check a model, named `where` in messages: its texts, its names, its functions and its operators, in this order.

    Raises MalformedInputError for the first thing that is wrong, UnsupportedError for functions that expand too far.
    """
    check_text(model, where)
    _check_names(model)
    check_functions(model)
    check_operators(model)


def _check_names(model: ModelProto) -> None:
    """Every name is written once, and before it is read."""
    _check_graph(model.graph, frozenset(), "the graph")
    seen: set[tuple[str, str, str]] = set()
    for function in model.functions:
        key = (function.domain, function.name, function.overload)
        if key in seen:
            raise MalformedInputError(f"function {function.name!r} is defined twice; keep one definition")
        seen.add(key)
        _check_nodes(function.node, set(function.input), frozenset(), f"function {function.name!r}")


def _check_graph(graph: GraphProto, outer: frozenset[str], where: str) -> None:
    inputs = [value.name for value in graph.input]
    weights = weight_names(graph)
    for what, names in (("inputs", inputs), ("initializers", weights)):
        repeated = _first_repeated(names)
        if repeated is not None:
            raise MalformedInputError(f"{where} has two {what} named {repeated!r}; names must be unique")
        if "" in names:
            raise MalformedInputError(f"{where} has {what} without a name; export the model again")
    known = _check_nodes(graph.node, {*inputs, *weights}, outer, where)
    for value in graph.output:
        if value.name not in known and value.name not in outer:
            raise MalformedInputError(f"{where} lists output {value.name!r}, which nothing writes; remove it")
    repeated = _first_repeated([value.name for value in graph.output])
    if repeated is not None:
        raise MalformedInputError(f"{where} lists output {repeated!r} twice; names must be unique")


def _check_nodes(nodes: Sequence[NodeProto], known: set[str], outer: frozenset[str], where: str) -> set[str]:
    later = {name for node in nodes for name in node.output}
    for position, node in enumerate(nodes):
        for name in input_names(node):
            if name not in known and name not in outer:
                raise MalformedInputError(_missing_input(node, position, name, name in later, where))
        for label, graph in subgraphs_of(node):
            _check_graph(graph, outer | known, f"{label} of {describe_node(node, position)}")
        for name in node.output:
            if name in known:
                raise MalformedInputError(
                    f"{where}: {describe_node(node, position)} writes {name!r}, which exists already; "
                    "every name may be written once"
                )
            if name:
                known.add(name)
    return known


def _missing_input(node: NodeProto, position: int, name: str, written_later: bool, where: str) -> str:
    if written_later:
        return (
            f"{where}: {describe_node(node, position)} reads {name!r} before it is written; the nodes are not in a "
            "valid order or form a cycle"
        )
    return f"{where}: {describe_node(node, position)} reads {name!r}, which nothing provides; the model is incomplete"


def _first_repeated(names: Iterable[str]) -> str | None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            return name
        seen.add(name)
    return None
