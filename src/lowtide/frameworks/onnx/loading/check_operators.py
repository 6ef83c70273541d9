"""Whether nodes fit the definitions of their operators: how many inputs and outputs, which attributes."""

from collections.abc import Iterable, Mapping
from functools import cache

from onnx import ModelProto, NodeProto, defs

from lowtide.core.errors import MalformedInputError, UnsupportedError
from lowtide.frameworks.onnx.operators.nodes import describe_node, domain_of, operator_of, subgraphs_of


def check_operators(model: ModelProto) -> None:
    """Raise MalformedInputError for the first node that its operator's definition does not allow.

    Raises UnsupportedError for an operator set that is not known.

    Operators that ONNX does not define, and functions of the model's own, may look as they like.
    """
    versions = {domain_of(entry.domain): entry.version for entry in model.opset_import}
    newest = defs.onnx_opset_version()
    if versions.get("", 1) > newest:
        raise UnsupportedError(
            f"the model asks for operator set {versions['']}, and the installed onnx knows those up to {newest}; "
            "install a newer onnx, or export with an older set"
        )
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
