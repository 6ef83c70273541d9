"""Check that a model is a valid program."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache

from onnx import FunctionProto, GraphProto, ModelProto, NodeProto, defs

from lowtide.core.errors import MalformedInputError, UnsupportedError
from lowtide.frameworks.onnx.operators.nodes import (
    all_nodes,
    describe_node,
    domain_of,
    input_names,
    operator_of,
    subgraphs_of,
    weight_names,
)


def check_model(model: ModelProto, where: str) -> None:
    """Check a model, called `where` in messages.

    Raises MalformedInputError for the first error, UnsupportedError for functions that expand too far.
    """
    check_text(model, where)
    _check_names(model)
    check_functions(model)
    check_operators(model)


def _check_names(model: ModelProto) -> None:
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
                early = "before it is written; the nodes are in no valid order or form a cycle"
                reason = early if name in later else "but nothing provides it; the model is incomplete"
                raise MalformedInputError(f"{where}: {describe_node(node, position)} reads {name!r}, {reason}")
        for label, graph in subgraphs_of(node):
            _check_graph(graph, outer | known, f"{label} of {describe_node(node, position)}")
        for name in node.output:
            if name in known:
                node_name = describe_node(node, position)
                raise MalformedInputError(f"{where}: {node_name} writes {name!r}, which exists already; rename it")
            if name:
                known.add(name)
    return known


def _first_repeated(names: Iterable[str]) -> str | None:
    return next((name for name, count in Counter(names).items() if count > 1), None)


def check_text(model: ModelProto, where: str) -> None:
    """Raise MalformedInputError for names that are not UTF-8, which protobuf returns as bytes."""
    for text in _texts(model):
        if isinstance(text, bytes):
            raise MalformedInputError(f"{where}: name {text!r} is not UTF-8; the file is damaged")


def _texts(model: ModelProto) -> Iterator[str | bytes]:
    yield from (entry.domain for entry in model.opset_import)
    yield from _graph_texts(model.graph)
    for function in model.functions:
        yield from (function.name, function.domain, function.overload)
        yield from (*function.input, *function.output, *function.attribute)
        yield from (entry.domain for entry in function.opset_import)
        yield from (attribute.name for attribute in function.attribute_proto)
        yield from _node_texts(function)


def _graph_texts(graph: GraphProto) -> Iterator[str | bytes]:
    yield graph.name
    for value in (*graph.input, *graph.output, *graph.value_info):
        yield value.name
        yield from (dim.dim_param for dim in value.type.tensor_type.shape.dim)
    yield from (tensor.name for tensor in graph.initializer)
    yield from (tensor.values.name for tensor in graph.sparse_initializer)
    yield from _node_texts(graph)


def _node_texts(graph: GraphProto | FunctionProto) -> Iterator[str | bytes]:
    for node in graph.node:
        yield from (node.name, node.op_type, node.domain, node.overload)
        yield from (*node.input, *node.output)
        for attribute in node.attribute:
            yield from (attribute.name, attribute.ref_attr_name)
        for _, inner in subgraphs_of(node):
            yield from _graph_texts(inner)


MOST_NODES = 10_000_000
MOST_DEPTH = 200
"""Limit on nested calls, since expansion is recursive."""

_Key = tuple[str, str]


def check_functions(model: ModelProto) -> None:
    """Raise MalformedInputError for recursive functions, UnsupportedError if they expand too far. O(n)."""
    bodies = {(f.domain, f.name): _calls(all_nodes(f)) for f in model.functions}
    nodes: dict[_Key, int] = {}
    depth: dict[_Key, int] = {}
    for root in bodies:
        stack: list[tuple[_Key, bool]] = [(root, False)]
        active: set[_Key] = set()
        while stack:
            key, leaving = stack.pop()
            if leaving:
                active.discard(key)
                nodes[key] = sum(count * nodes.get(callee, 1) for callee, count in bodies[key].items())
                depth[key] = 1 + max((depth.get(callee, 0) for callee in bodies[key]), default=0)
            elif key in active:
                raise MalformedInputError(f"function {key[1]!r} calls itself; ONNX functions must not be recursive")
            elif key in bodies and key not in nodes:
                active.add(key)
                stack.append((key, True))
                stack.extend((callee, False) for callee in bodies[key])
    total = sum(count * nodes.get(key, 1) for key, count in _calls(all_nodes(model.graph)).items())
    if max(total, max(nodes.values(), default=0)) > MOST_NODES or max(depth.values(), default=0) > MOST_DEPTH:
        raise UnsupportedError(
            f"functions expand to more than {MOST_NODES} nodes or {MOST_DEPTH} levels; inline them first"
        )


def _calls(nodes: Iterable[NodeProto]) -> Mapping[_Key, int]:
    return Counter((node.domain, node.op_type) for node in nodes)


def check_operators(model: ModelProto) -> None:
    """Raise MalformedInputError for unknown operators, wrong numbers of inputs or outputs, or missing attributes.

    Unknown domains and the model's functions are unchecked. Raises UnsupportedError for a newer operator set.
    """
    versions = {domain_of(entry.domain): entry.version for entry in model.opset_import}
    newest = defs.onnx_opset_version()
    if versions.get("", 1) > newest:
        raise UnsupportedError(
            f"the model needs operator set {versions['']}, but the installed onnx supports up to {newest}; "
            "install a newer onnx, or export with an older set"
        )
    own = {(function.domain, function.name) for function in model.functions}
    _check_operators_of(model.graph.node, versions, own)


def _check_operators_of(nodes: Iterable[NodeProto], versions: Mapping[str, int], own: set[tuple[str, str]]) -> None:
    for position, node in enumerate(nodes):
        domain, name = operator_of(node)
        if (node.domain, name) not in own:
            schema = _schema(domain, name, versions.get(domain, 1))
            if schema is not None:
                _check_node(node, schema, describe_node(node, position))
            elif not domain:
                raise MalformedInputError(
                    f"{describe_node(node, position)}: operator set {versions.get(domain, 1)} has no such operator; "
                    "check the name, or export with another set"
                )
        for _, graph in subgraphs_of(node):
            _check_operators_of(graph.node, versions, own)


def _check_node(node: NodeProto, schema: defs.OpSchema, where: str) -> None:
    for what, names, formals, fewest, most in (
        ("inputs", node.input, schema.inputs, schema.min_input, schema.max_input),
        ("outputs", node.output, schema.outputs, schema.min_output, schema.max_output),
    ):
        optional = [formal.option == defs.OpSchema.FormalParameterOption.Optional for formal in formals]
        left_out = any(not name and not may for name, may in zip(names[:fewest], optional, strict=False))
        if not fewest <= len(names) <= most or left_out:
            expected = (
                f"{fewest}" if fewest == most else f"at least {fewest}" if len(names) < most else f"at most {most}"
            )
            raise MalformedInputError(f"{where} has {len(names)} {what}, but needs {expected}; export the model again")
    given = {attribute.name for attribute in node.attribute}
    for name, attribute in schema.attributes.items():
        if attribute.required and name not in given:
            raise MalformedInputError(f"{where} lacks attribute {name!r}; export the model again")


@cache
def _schema(domain: str, name: str, version: int) -> defs.OpSchema | None:
    try:
        return defs.get_schema(name, max_inclusive_version=version, domain=domain)
    except (defs.SchemaError, TypeError):
        return None
