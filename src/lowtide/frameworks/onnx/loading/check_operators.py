"""Whether nodes fit the definitions of their operators: how many inputs and outputs, which attributes."""

from collections.abc import Iterable, Mapping
from functools import cache

from onnx import ModelProto, NodeProto, defs

from lowtide.errors import MalformedInputError
from lowtide.frameworks.onnx.operators.nodes import describe_node, domain_of, operator_of, subgraphs_of


def check_operators(model: ModelProto) -> None:
    """Raise MalformedInputError for the first node that its operator's definition does not allow.

    Operators that ONNX does not define, and functions of the model's own, may look as they like.
    """
    versions = {domain_of(entry.domain): entry.version for entry in model.opset_import}
    own = {(function.domain, function.name) for function in model.functions}
    _check_nodes(model.graph.node, versions, own)


def _check_nodes(nodes: Iterable[NodeProto], versions: Mapping[str, int], own: set[tuple[str, str]]) -> None:
    for position, node in enumerate(nodes):
        domain, name = operator_of(node)
        if (node.domain, name) not in own:
            schema = _schema(domain, name, versions.get(domain, 1))
            if schema is not None:
                _check_node(node, schema, describe_node(node, position))
            elif not domain:
                raise MalformedInputError(
                    f"{describe_node(node, position)}: ONNX has no such operator in set {versions.get(domain, 1)}; "
                    "check the name, or export with the operator set that has it"
                )
        for _, graph in subgraphs_of(node):
            _check_nodes(graph.node, versions, own)


def _check_node(node: NodeProto, schema: defs.OpSchema, where: str) -> None:
    for what, names, fewest, most in (
        ("inputs", node.input, schema.min_input, schema.max_input),
        ("outputs", node.output, schema.min_output, schema.max_output),
    ):
        if not fewest <= len(names) <= most or not all(names[:fewest]):
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
