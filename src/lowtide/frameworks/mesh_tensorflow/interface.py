"""What lowtide asks of a graph of Mesh-TensorFlow, and how a bare graph is made to answer."""

from collections.abc import Iterable, Iterator, Mapping
from math import prod
from typing import Any, Protocol, cast

from lowtide.core.errors import GraphError, MalformedInputError, UsageError, one_line
from lowtide.frameworks.table import GRAPH_INTERFACE


class GraphInterface(Protocol):
    """The methods of `mesh_tensorflow.auto_mtf.graph_interface.GraphInterface` that are called here."""

    def get_all_operation_names(self) -> Iterable[str]:
        """Yield the names of all operations, by id."""
        ...

    def get_operation_input_names(self, operation_name: str) -> Iterable[str]:
        """Yield the names of the tensors an operation reads."""
        ...

    def get_operation_output_names(self, operation_name: str) -> Iterable[str]:
        """Yield the names of the tensors an operation writes."""
        ...

    def get_tensor_size(
        self,
        tensor_name: str,
        partial_layout: Mapping[str, str] | None = None,
        mesh_dimension_to_size: Mapping[str, int] | None = None,
    ) -> int:
        """Return the bytes of a tensor, with a layout those on one device; only then it is called with three."""
        ...

    def is_tensor_final(self, tensor_name: str) -> bool:
        """Return whether a tensor must stay to the end."""
        ...


def as_interface(source: Any, final: Iterable[str] = ()) -> GraphInterface:
    """Return a GraphInterface as it is, and an `mtf.Graph` or `tf.Graph` as one with these final tensors.

    Raises UsageError for anything else, and where a GraphInterface is given final tensors, which it names itself.
    """
    names = list(final)
    if all(callable(getattr(source, method, None)) for method in GRAPH_INTERFACE):
        if names:
            raise UsageError("a GraphInterface says itself which tensors are final; call its set_tensor_final instead")
        return cast("GraphInterface", source)
    operations = source.get_operations() if hasattr(source, "get_operations") else getattr(source, "operations", None)
    if not isinstance(operations, list | tuple):
        raise UsageError(
            f"cannot read a {type(source).__name__} as a graph; give a GraphInterface, an mtf.Graph or a tf.Graph"
        )
    return BareGraph(cast("list[Any]", operations), names)


class BareGraph:
    """The operations of an `mtf.Graph` or `tf.Graph`, with the methods of a GraphInterface."""

    def __init__(self, operations: Iterable[Any], final: Iterable[str]) -> None:
        """Raise MalformedInputError for operations that have no names, inputs or outputs; UsageError for no tensor."""
        listed = list(operations)
        try:
            self._operations = {operation.name: operation for operation in listed}
            self._tensors = {tensor.name: tensor for op in self._operations.values() for tensor in op.outputs}
        except AttributeError as error:
            raise MalformedInputError(f"the graph has something else than operations: {one_line(error)}") from None
        if len(self._operations) < len(listed):
            raise MalformedInputError("two operations of the graph have one name; names must be unique")
        self._final = set(final)
        unknown = sorted(self._final - self._tensors.keys())
        if unknown:
            raise UsageError(f"the graph has no tensor {unknown[0]!r}; name final tensors as it does, like 'add:0'")

    def get_all_operation_names(self) -> Iterator[str]:
        """Yield the names of all operations, by id."""
        yield from self._operations

    def get_operation_input_names(self, operation_name: str) -> list[str]:
        """Return the names of the tensors an operation reads."""
        return [tensor.name for tensor in self._operations[operation_name].inputs]

    def get_operation_output_names(self, operation_name: str) -> list[str]:
        """Return the names of the tensors an operation writes."""
        return [tensor.name for tensor in self._operations[operation_name].outputs]

    def get_operation_control_names(self, operation_name: str) -> list[str]:
        """Return the names of the operations that must come before; only a `tf.Graph` has any."""
        return [before.name for before in getattr(self._operations[operation_name], "control_inputs", ())]

    def get_tensor_size(
        self,
        tensor_name: str,
        partial_layout: Mapping[str, str] | None = None,
        mesh_dimension_to_size: Mapping[str, int] | None = None,
    ) -> int:
        """Return the bytes of a tensor, with a layout those on one device: what does not divide evenly is rounded up.

        Raises GraphError for a tensor whose shape is not known.
        """
        tensor = self._tensors[tensor_name]
        entries = _n_entries(tensor)
        for dimension in getattr(tensor.shape, "dimension_names", ()):
            if partial_layout and dimension in partial_layout:
                entries = -(-entries // (mesh_dimension_to_size or {})[partial_layout[dimension]])
        return entries * tensor.dtype.size

    def is_tensor_final(self, tensor_name: str) -> bool:
        """Return whether a tensor must stay to the end."""
        return tensor_name in self._final


def _n_entries(tensor: Any) -> int:
    if hasattr(tensor.shape, "to_integer_list"):
        return prod(tensor.shape.to_integer_list)
    if tensor.shape.rank is None or None in tensor.shape.as_list():
        raise GraphError(
            f"tensor {tensor.name!r} has the shape {tensor.shape}, not all of it known; give it a full one"
        )
    return prod(tensor.shape.as_list())
