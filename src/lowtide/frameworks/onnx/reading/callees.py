"""Branches, loop bodies and functions as graphs.

ONNX Runtime writes results of an If or Scan into the node's outputs. A Loop copies carried values at its end and keeps
collected results in pieces until then.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from onnx import GraphProto, ModelProto, NodeProto, ValueInfoProto
from onnx.inliner import inline_local_functions

from lowtide.core.errors import MalformedInputError, one_line
from lowtide.engine.graph import Lifetime
from lowtide.frameworks.onnx.operators.nodes import all_nodes, describe_node, int_of, ints_of, operator_of, subgraphs_of
from lowtide.frameworks.onnx.reading.scope import Scope
from lowtide.frameworks.onnx.shapes.infer import infer_bound_types
from lowtide.frameworks.onnx.shapes.tensors import shape_in, type_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Callee:
    """A graph that a node calls."""

    label: str
    graph: GraphProto
    typed: GraphProto
    """After shape inference."""
    input_lifetime: Lifetime = Lifetime.INPUT
    """INPUT if the call holds it, PERSISTENT if the caller does."""
    outputs_in_caller: Sequence[str] = ()
    """In storage that the caller counts."""
    in_file: bool = True
    """Whether its nodes are in the file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A call's effect on the calling op."""

    callees: list[Callee] = field(default_factory=list[Callee])
    kind: str
    """The op's; "while" and "call" results are the body's, counted once."""
    collected: Sequence[str] = ()
    """Outputs held a second time, in pieces."""
    carried: Sequence[str] = ()
    """Outputs copied after the last run."""
    scratch_bytes: int = 0
    """Held throughout."""


def call_of(node: NodeProto, typed: NodeProto, position: int, scope: Scope) -> Call | None:
    """Return a node's call, if any; raises MalformedInputError if a body does not fit."""
    if (node.domain, node.op_type) in scope.context.functions:
        return _call_function(node, position, scope)
    bodies = [
        Callee(label=label, graph=graph, typed=other)
        for (label, graph), (_, other) in zip(subgraphs_of(node), subgraphs_of(typed), strict=True)
    ]
    if not bodies:
        return None
    return _CALLS.get(operator_of(node), _call_unknown)(node, bodies, scope)


_STATE_BUFFERS = 2
"""Per state of a Scan: runs read one and write the other."""
_FIRST_WITHOUT_BATCH = 9


def _call_if(node: NodeProto, bodies: Sequence[Callee], scope: Scope) -> Call:
    return Call(
        kind=node.op_type,
        callees=[replace(body, outputs_in_caller=[value.name for value in body.graph.output]) for body in bodies],
    )


def _call_loop(node: NodeProto, bodies: Sequence[Callee], scope: Scope) -> Call:
    (body,) = bodies
    n_carried = len(body.graph.input) - 2
    return Call(
        kind="while",
        callees=[body],
        collected=[name for name in node.output[n_carried:] if name],
        carried=[name for name in node.output[:n_carried] if name],
    )


def _call_scan(node: NodeProto, bodies: Sequence[Callee], scope: Scope) -> Call:
    (body,) = bodies
    graph = body.graph
    n_slices = int_of(node, "num_scan_inputs")
    n_states = len(graph.input) - n_slices
    if not 0 < n_slices <= len(graph.input):
        raise MalformedInputError(f"a Scan names {n_slices} scan inputs, but its body has {len(graph.input)} inputs")
    outputs = [value.name for value in graph.output]
    callee = replace(body, input_lifetime=Lifetime.PERSISTENT, outputs_in_caller=outputs)
    states = sum(type_bytes(value.type, value.name) or 0 for value in body.typed.input[:n_states])
    runs = _runs_of_scan(node, n_states, scope)
    buffers = _STATE_BUFFERS if runs is None else min(_STATE_BUFFERS, max(runs - 1, 0))
    return Call(kind="Scan", callees=[callee], scratch_bytes=buffers * states)


def _runs_of_scan(node: NodeProto, n_states: int, scope: Scope) -> int | None:
    """Before opset 9, a batch axis and lengths come first."""
    has_batch = scope.context.opset < _FIRST_WITHOUT_BATCH
    name = node.input[n_states + has_batch] if len(node.input) > n_states + has_batch else ""
    shape = shape_in(scope.types, name)
    axis = 1 if has_batch else next(iter(ints_of(node, "scan_input_axes")), 0)
    return shape[axis] if shape is not None and -len(shape) <= axis < len(shape) else None


def _call_unknown(node: NodeProto, bodies: Sequence[Callee], scope: Scope) -> Call:
    return Call(kind=node.op_type, callees=[replace(body, input_lifetime=Lifetime.PERSISTENT) for body in bodies])


_CALLS: dict[tuple[str, str], Callable[[NodeProto, Sequence[Callee], Scope], Call]] = {
    ("", "If"): _call_if,
    ("", "Loop"): _call_loop,
    ("", "Scan"): _call_scan,
}


def _call_function(node: NodeProto, position: int, scope: Scope) -> Call:
    model, where = scope.context.model, describe_node(node, position)
    single = ModelProto(ir_version=model.ir_version, opset_import=model.opset_import, functions=model.functions)
    single.graph.name = node.op_type
    single.graph.node.append(node)
    for name in dict.fromkeys(name for name in node.input if name):
        value = scope.value(name)
        single.graph.input.append(ValueInfoProto(name=name, type=value.type))
        weight = scope.context.short_weights.get(name)
        if weight is not None:
            single.graph.initializer.append(weight)
    single.graph.output.extend(ValueInfoProto(name=name, type=scope.types.get(name)) for name in node.output if name)
    try:
        expanded = inline_local_functions(single)
    except Exception as error:  # the C++ code raises several types
        raise MalformedInputError(f"{where}: its function cannot be expanded: {one_line(error)}") from None
    if any((inner.domain, inner.op_type) in scope.context.functions for inner in all_nodes(expanded.graph)):
        raise MalformedInputError(f"{where}: its function cannot be expanded; the definition does not fit the call")
    typed = infer_bound_types(expanded, where)
    del expanded.graph.initializer[:]  # arguments, counted by the caller
    callee = Callee(
        label="function",
        graph=expanded.graph,
        typed=typed.graph,
        input_lifetime=Lifetime.PERSISTENT,
        in_file=False,
    )
    return Call(kind="call", callees=[callee])
