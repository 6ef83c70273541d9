"""Effects of a node on memory."""

from collections.abc import Sequence
from dataclasses import dataclass

from lowtide.frameworks.tensorflow.graphs.node_def import NodeDef
from lowtide.frameworks.tensorflow.operators import ELEMENTWISE, READS_OF_RESOURCES, RESOURCE, VARIANT, spec_of
from lowtide.frameworks.tensorflow.shapes import output_types

_ARRAYS = ("TensorArrayGrad", "TensorArrayV", "TensorArrayWithShape")
_SUMS = frozenset({"AccumulateNV2", "AddN"})


@dataclass(frozen=True, slots=True)
class NodeEffects:
    """Effects by the index of inputs and outputs."""

    mutated: Sequence[int] = ()
    forwarded: Sequence[tuple[int, int]] = ()
    """(input, output) of returned references."""
    is_fixed: bool = False
    """Whether the node runs once and in order."""


_NONE = NodeEffects()


def holds_tensors(node: NodeDef, port: int) -> bool:
    """Return whether an output is a list or array of tensors."""
    if node.op.startswith(_ARRAYS) and not port:
        return True
    types = output_types(node)
    return port < len(types) and types[port] == VARIANT


def effects_of(node: NodeDef, *, calls: bool) -> NodeEffects:
    spec = spec_of(node.op)
    if spec is None:
        return NodeEffects(is_fixed=True)
    if not spec.is_stateful and not any(each.is_reference or each.kind == str(RESOURCE) for each in spec.inputs):
        return _NONE
    types = spec.input_types(node)
    mutated = [
        place
        for place, (kind, is_reference) in enumerate(types)
        if is_reference or (kind % 100 == RESOURCE and node.op not in READS_OF_RESOURCES)
    ]
    references = [place for place, (_, is_reference) in enumerate(types) if is_reference]
    forwarded = [(references[0], 0)] if references and any(each.is_reference for each in spec.outputs) else []
    only_variables = bool(mutated) and not calls and _changes_only_its_inputs(node.op)
    return NodeEffects(mutated, forwarded, calls or not (only_variables or node.op in READS_OF_RESOURCES))


def may_write_over(node: NodeDef, n_inputs: int) -> range:
    """Return inputs that the first output may use in place."""
    if node.op in _SUMS:
        return range(n_inputs)
    return range(min(2, n_inputs)) if node.op in ELEMENTWISE else range(0)


def _changes_only_its_inputs(op: str) -> bool:
    return op.startswith(("Assign", "Apply", "ResourceApply", "ResourceScatter", "Scatter", "ResourceSparseApply"))
