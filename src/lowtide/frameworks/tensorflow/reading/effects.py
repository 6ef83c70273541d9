"""What a node does to memory: what it reads, overwrites or hands on, and whether it may run again."""

from collections.abc import Sequence
from dataclasses import dataclass

from lowtide.frameworks.tensorflow.graphs.node_def import NodeDef
from lowtide.frameworks.tensorflow.operators.kinds import (
    CONSTANTS,
    ELEMENTWISE,
    PLACEHOLDERS,
    READS_OF_RESOURCES,
    VARIABLES,
    VIEWS,
)
from lowtide.frameworks.tensorflow.operators.ops import RESOURCE, VARIANT, spec_of
from lowtide.frameworks.tensorflow.shapes.sizes import output_types

SOURCES = CONSTANTS | PLACEHOLDERS | VARIABLES
_ARRAYS = ("TensorArrayGrad", "TensorArrayV", "TensorArrayWithShape")
_SUMS = frozenset({"AccumulateNV2", "AddN"})


@dataclass(frozen=True, slots=True)
class NodeEffects:
    """Inputs and outputs by number."""

    mutated: Sequence[int] = ()
    """Inputs that it overwrites: references, and resources that it does not only read."""
    handed_on: Sequence[tuple[int, int]] = ()
    """(input, output) of references that come out again."""
    is_fixed: bool = False
    """Whether it must neither run twice nor change places with its like: it has state, or is unknown."""


_NONE = NodeEffects()


def is_source(node: NodeDef) -> bool:
    """Whether a node is there before anything runs: a constant, a variable, a placeholder."""
    return node.op in SOURCES


def is_view(node: NodeDef) -> bool:
    """Whether what a node gives is what it reads, under another name."""
    return node.op in VIEWS


def holds_tensors(node: NodeDef, port: int) -> bool:
    """Whether an output stands for lists, arrays or stacks of tensors, whose bytes no shape tells."""
    if node.op.startswith(_ARRAYS) and not port:
        return True
    types = output_types(node)
    return port < len(types) and types[port] == VARIANT


def effects_of(node: NodeDef, *, calls: bool) -> NodeEffects:
    """Return the effects of a node that is neither source nor view."""
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
    handed_on = [(references[0], 0)] if references and any(each.is_reference for each in spec.outputs) else []
    only_variables = bool(mutated) and not calls and _touches_only_what_it_names(node.op)
    return NodeEffects(mutated, handed_on, calls or not (only_variables or node.op in READS_OF_RESOURCES))


def may_write_over(node: NodeDef, n_inputs: int) -> range:
    """Return the inputs that the first output may take the place of."""
    if node.op in _SUMS:
        return range(n_inputs)
    return range(min(2, n_inputs)) if node.op in ELEMENTWISE else range(0)


def _touches_only_what_it_names(op: str) -> bool:
    """Whether an op with state changes nothing but the variables it is given."""
    return op.startswith(("Assign", "Apply", "ResourceApply", "ResourceScatter", "Scatter", "ResourceSparseApply"))
