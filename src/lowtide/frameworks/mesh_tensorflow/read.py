"""Read a GraphInterface into a graph."""

import heapq
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from lowtide.core.errors import GraphError, LowtideError, MalformedInputError, UsageError, one_line
from lowtide.engine.graph import Graph, GraphBuilder, Lifetime
from lowtide.frameworks.mesh_tensorflow.interface import GraphInterface

Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True, kw_only=True)
class MeshLayout:
    partial_layout: Mapping[str, str]
    """The mesh dimension of each split tensor dimension."""
    mesh_dimension_to_size: Mapping[str, int]

    def check(self) -> None:
        for dimension, mesh_dimension in self.partial_layout.items():
            devices = self.mesh_dimension_to_size.get(mesh_dimension)
            if not isinstance(devices, int) or devices < 1:
                raise UsageError(
                    f"dimension {dimension!r} is split along mesh dimension {mesh_dimension!r}, which has "
                    f"{'no size' if devices is None else f'{devices!r} devices'}; give it in mesh_dimension_to_size"
                )


@dataclass(frozen=True, slots=True, kw_only=True)
class TranslatedInterface:
    graph: Graph
    operation_ids: NDArray[np.int32]
    tensor_names: tuple[str, ...]


def read_interface(interface: GraphInterface, layout: MeshLayout | None) -> TranslatedInterface:
    """Read a GraphInterface into a graph. O((n + e) log n).

    Operations are sorted topologically, ties by id. Tensors without writer are inputs, final tensors outputs. Raises
    MalformedInputError if a method fails, GraphError for an invalid program.
    """
    names: list[str] = _ask(_names, interface.get_all_operation_names)
    reads: list[list[str]] = [_ask(_names, interface.get_operation_input_names, name) for name in names]
    writes: list[list[str]] = [_ask(_names, interface.get_operation_output_names, name) for name in names]
    places = {name: place for place, name in enumerate(names)}
    waits = [[places[before] for before in _controls(interface, name) if before in places] for name in names]

    builder = GraphBuilder("mesh_tensorflow")
    producers: dict[str, int] = {}
    for place, tensors in enumerate(writes):
        for tensor in dict.fromkeys(tensors):
            if producers.setdefault(tensor, place) != place:
                raise GraphError(f"operations {names[producers[tensor]]!r} and {names[place]!r} both write {tensor!r}")
    inputs = dict.fromkeys(tensor for tensors in reads for tensor in tensors if tensor not in producers)
    buffers: dict[str, int] = {}
    for tensor in (*inputs, *producers):
        is_final = tensor in producers and _ask(interface.is_tensor_final, tensor)
        lifetime = Lifetime.INPUT if tensor in inputs else Lifetime.OUTPUT if is_final else Lifetime.INTERMEDIATE
        buffers[tensor] = builder.add_buffer(str(tensor), _size(interface, tensor, layout), lifetime)

    before = [{*(producers[t] for t in reads[op] if t in producers), *waits[op]} for op in range(len(names))]
    order = _valid_order(names, before)
    ops = {operation: op for op, operation in enumerate(order)}
    for operation in order:
        builder.add_op(
            str(names[operation]),
            "operation",
            reads=[buffers[tensor] for tensor in reads[operation]],
            writes=[buffers[tensor] for tensor in dict.fromkeys(writes[operation])],
            after=sorted(ops[earlier] for earlier in set(waits[operation])),
            pure=False,
        )
    ids = np.asarray(order, np.int32)
    return TranslatedInterface(graph=builder.build(), operation_ids=ids, tensor_names=tuple(buffers))


def _controls(interface: Any, name: str) -> Iterable[str]:
    ask = getattr(interface, "get_operation_control_names", None)
    return () if ask is None else _ask(_names, ask, name)


def _size(interface: GraphInterface, tensor: str, layout: MeshLayout | None) -> int:
    on_device = () if layout is None else (layout.partial_layout, layout.mesh_dimension_to_size)
    size = _ask(interface.get_tensor_size, tensor, *on_device)
    if isinstance(size, float) or not hasattr(size, "__index__"):
        raise GraphError(f"tensor {tensor!r} has the size {size!r}; give whole bytes")
    return int(size)


def _names(method: Callable[..., Iterable[str]], *arguments: str) -> list[str]:
    names = list(method(*arguments))
    dict.fromkeys(names)
    return names


def _ask(method: Callable[..., Answer], *arguments: Any) -> Answer:
    try:
        return method(*arguments)
    except LowtideError:
        raise
    except Exception as error:
        about = [argument for argument in arguments if isinstance(argument, str)]
        subject = repr(about[0]) if about else "its operations"
        raise MalformedInputError(
            f"the graph fails on {subject}: {type(error).__name__}: {one_line(error)}; correct its methods"
        ) from error


def _valid_order(names: list[str], before: list[set[int]]) -> list[int]:
    sorter: TopologicalSorter[int] = TopologicalSorter(dict(enumerate(before)))
    try:
        sorter.prepare()
    except CycleError as error:
        stuck: list[int] = error.args[1]
        raise GraphError(
            f"operation {names[min(stuck)]!r} depends on itself, as in TensorFlow's loops; give a graph without loops"
        ) from None
    ready: list[int] = []
    order: list[int] = []
    while sorter.is_active():
        for operation in sorter.get_ready():
            heapq.heappush(ready, operation)
        order.append(heapq.heappop(ready))
        sorter.done(order[-1])
    return order
