"""Mesh-TensorFlow's GraphInterface, and an adapter for graphs without it."""

from collections.abc import Iterable, Iterator, Mapping
from math import prod
from typing import Any, Protocol, cast

from lowtide.core.errors import GraphError, MalformedInputError, UsageError, named_type, one_line
from lowtide.frameworks.table import GRAPH_INTERFACE


class GraphInterface(Protocol):
    """The methods of `mesh_tensorflow.auto_mtf.graph_interface.GraphInterface` in use."""

    def get_all_operation_names(self) -> Iterable[str]:
        """Yield all operations by id."""
        ...

    def get_operation_input_names(self, operation_name: str) -> Iterable[str]:
        """Yield the tensors that an operation reads."""
        ...

    def get_operation_output_names(self, operation_name: str) -> Iterable[str]:
        """Yield the tensors that an operation writes."""
        ...

    def get_tensor_size(
        self,
        tensor_name: str,
        partial_layout: Mapping[str, str] | None = None,
        mesh_dimension_to_size: Mapping[str, int] | None = None,
    ) -> int:
        """Return the bytes of a tensor, with a layout on one device."""
        ...

    def is_tensor_final(self, tensor_name: str) -> bool:
        """Return whether a tensor lives to the end."""
        ...


def as_interface(source: Any, final: Iterable[str] = ()) -> GraphInterface:
    """Return a GraphInterface, or an adapter of an `mtf.Graph` or `tf.Graph` with these final tensors.

    Raises UsageError for other objects, and for final tensors of a GraphInterface, which names its own.
    """
    names = list(final)
    if all(callable(getattr(source, method, None)) for method in GRAPH_INTERFACE):
        if names:
            raise UsageError("a GraphInterface has its own final tensors; call its set_tensor_final instead")
        return cast("GraphInterface", source)
    operations = source.get_operations() if hasattr(source, "get_operations") else getattr(source, "operations", None)
    if not isinstance(operations, list | tuple):
        raise UsageError(
            f"cannot read {named_type(source)} as a graph; give a GraphInterface, an mtf.Graph or a tf.Graph"
        )
    return BareGraph(cast("list[Any]", operations), names)


class BareGraph:
    def __init__(self, operations: Iterable[Any], final: Iterable[str]) -> None:
        """Raise MalformedInputError for invalid operations, UsageError for an unknown final tensor."""
        listed = list(operations)
        try:
            self._operations = {operation.name: operation for operation in listed}
            self._tensors = {tensor.name: tensor for op in self._operations.values() for tensor in op.outputs}
        except AttributeError as error:
            raise MalformedInputError(f"the graph has an invalid operation: {one_line(error)}") from None
        if len(self._operations) < len(listed):
            raise MalformedInputError("two operations of the graph share a name; names must be unique")
        self._final = set(final)
        unknown = sorted(self._final - self._tensors.keys())
        if unknown:
            raise UsageError(f"the graph has no tensor {unknown[0]!r}; use its tensor names, such as 'add:0'")

    def get_all_operation_names(self) -> Iterator[str]:
        yield from self._operations

    def get_operation_input_names(self, operation_name: str) -> list[str]:
        return [tensor.name for tensor in self._operations[operation_name].inputs]

    def get_operation_output_names(self, operation_name: str) -> list[str]:
        return [tensor.name for tensor in self._operations[operation_name].outputs]

    def get_operation_control_names(self, operation_name: str) -> list[str]:
        return [before.name for before in getattr(self._operations[operation_name], "control_inputs", ())]

    def get_tensor_size(
        self,
        tensor_name: str,
        partial_layout: Mapping[str, str] | None = None,
        mesh_dimension_to_size: Mapping[str, int] | None = None,
    ) -> int:
        """Return the bytes of a tensor, on one device rounded up; raises GraphError for unknown shapes."""
        tensor = self._tensors[tensor_name]
        entries = _n_entries(tensor)
        for dimension in getattr(tensor.shape, "dimension_names", ()):
            if partial_layout and dimension in partial_layout:
                entries = -(-entries // (mesh_dimension_to_size or {})[partial_layout[dimension]])
        return entries * tensor.dtype.size

    def is_tensor_final(self, tensor_name: str) -> bool:
        return tensor_name in self._final


def _n_entries(tensor: Any) -> int:
    if hasattr(tensor.shape, "to_integer_list"):
        return prod(tensor.shape.to_integer_list)
    if tensor.shape.rank is None or None in tensor.shape.as_list():
        raise GraphError(f"tensor {tensor.name!r} has the unknown shape {tensor.shape}; give it a full one")
    return prod(tensor.shape.as_list())
