"""Reading a GraphInterface and bare graphs, and one-line errors."""

from dataclasses import dataclass, field
from math import prod
from typing import Any

import pytest

import lowtide
from lowtide.core.errors import GraphError, LowtideError, MalformedInputError, UsageError
from lowtide.mesh_tensorflow import MeshTensorflowModel, minimize_peak_memory
from tests.frameworks.mesh_tensorflow.interfaces import Listed, tensor_sizes


@dataclass(frozen=True)
class MeshShape:
    """As `mtf.Shape`: dimensions with names."""

    dims: dict[str, int]

    @property
    def to_integer_list(self) -> list[int]:
        return list(self.dims.values())

    @property
    def dimension_names(self) -> list[str]:
        return list(self.dims)


@dataclass(frozen=True)
class TensorShape:
    """As `tf.TensorShape`: dimensions without names, or none known."""

    dims: list[int | None] | None

    @property
    def rank(self) -> int | None:
        return None if self.dims is None else len(self.dims)

    def as_list(self) -> list[int | None]:
        assert self.dims is not None
        return self.dims


@dataclass(frozen=True)
class Type:
    size: int


@dataclass(frozen=True)
class Tensor:
    name: str
    shape: Any
    dtype: Type = Type(4)


@dataclass
class Operation:
    name: str
    outputs: list[Tensor] = field(default_factory=list)
    inputs: list[Tensor] = field(default_factory=list)
    control_inputs: list["Operation"] = field(default_factory=list)


@dataclass
class MeshGraph:
    """As `mtf.Graph`."""

    operations: list[Operation]


@dataclass
class TensorflowGraph:
    """As `tf.Graph`."""

    found: list[Operation]

    def get_operations(self) -> list[Operation]:
        return self.found


def _mesh_graph() -> MeshGraph:
    x = Tensor("x:0", MeshShape({"a": 6, "b": 10}), Type(2))
    y = Tensor("y:0", MeshShape({"b": 10}))
    return MeshGraph([Operation("x", [x]), Operation("y", [y], [x])])


def _tensorflow_graph(shape: list[int | None] | None) -> TensorflowGraph:
    x = Tensor("x:0", TensorShape(shape))
    return TensorflowGraph([Operation("x", [x]), Operation("y", [Tensor("y:0", TensorShape([]))], [x])])


def test_a_mesh_graph_is_read_with_the_bytes_of_its_tensors_whole_and_on_one_device() -> None:
    assert tensor_sizes(MeshTensorflowModel(_mesh_graph())) == {"x:0": 120, "y:0": 40}
    layout = {"a": "rows", "b": "columns", "elsewhere": "rows"}
    model = MeshTensorflowModel(_mesh_graph(), partial_layout=layout, mesh_dimension_to_size={"rows": 2, "columns": 4})
    assert tensor_sizes(model) == {"x:0": 2 * 8, "y:0": 4 * 3}


def test_a_graph_of_tensorflow_is_read_with_control_inputs() -> None:
    graph = _tensorflow_graph([3, 5])
    assert tensor_sizes(MeshTensorflowModel(graph)) == {"x:0": 60, "y:0": 4}
    late, early = (Operation(name, [Tensor(f"{name}:0", TensorShape([1]))]) for name in ("late", "early"))
    late.control_inputs.append(early)
    assert minimize_peak_memory(TensorflowGraph([late, early]), "LIST") == [1, 0]


def test_final_tensors_of_a_bare_graph_are_named_and_stay() -> None:
    graph = _mesh_graph()
    assert MeshTensorflowModel(graph).peak_bytes([0, 1]) == 160
    assert MeshTensorflowModel(graph).graph.lifetimes.tolist() == [lowtide.Lifetime.INTERMEDIATE] * 2
    kept = MeshTensorflowModel(graph, final=["x:0"])
    assert kept.graph.lifetimes.tolist() == [lowtide.Lifetime.OUTPUT, lowtide.Lifetime.INTERMEDIATE]


def test_tensors_that_nothing_writes_are_inputs_and_in_every_content() -> None:
    model = MeshTensorflowModel(Listed([("f", ["x"], ["y"]), ("g", ["y"], ["z"])], {"x": 1, "y": 2, "z": 4}, ["z"]))
    assert model.memory_contents([0, 1]) == [{"x", "y"}, {"x", "y", "z"}]
    assert model.peak_bytes([0, 1]) == 7


class _Fails(Listed):
    def get_tensor_size(self, tensor_name: str, partial_layout: Any = None, mesh_dimension_to_size: Any = None) -> int:
        raise KeyError("two\nlines")


class _Forgets(Listed):
    def get_all_operation_names(self) -> Any:
        return None


GOOD: list[tuple[str, list[str], list[str]]] = [("f", [], ["x"]), ("g", ["x"], ["y"])]
SIZES = {"x": 1, "y": 2}


@pytest.mark.parametrize(
    ("source", "arguments", "error", "says"),
    [
        (_Fails(GOOD, SIZES), {}, MalformedInputError, "'x'"),
        (_Forgets(GOOD, SIZES), {}, MalformedInputError, "operations"),
        (Listed([("f", [], ["x"]), ("g", [["x"]], ["y"])], SIZES), {}, MalformedInputError, "'g'"),  # pyright: ignore
        (Listed(GOOD, {"x": 1.5, "y": 2}), {}, GraphError, "whole bytes"),
        (Listed(GOOD, {"x": None, "y": 2}), {}, GraphError, "whole bytes"),
        (Listed(GOOD, {"x": -1, "y": 2}), {}, GraphError, "-1"),
        (Listed(GOOD, {"x": 2**70, "y": 2}), {}, GraphError, "2\\^63"),
        (Listed([("f", ["y"], ["x"]), ("g", ["x"], ["y"])], SIZES), {}, GraphError, "without loops"),
        (Listed([("f", ["x"], ["x"])], SIZES), {}, GraphError, "without loops"),
        (Listed([("f", [], ["x"]), ("g", [], ["x"])], SIZES), {}, GraphError, "both write 'x'"),
        (Listed(GOOD, SIZES), {"dims": {"a": 1}}, UsageError, "leave"),
        (Listed(GOOD, SIZES), {"final": ["x"]}, UsageError, "set_tensor_final"),
        (Listed(GOOD, SIZES), {"partial_layout": {"a": "rows"}}, UsageError, "no size"),
        (
            Listed(GOOD, SIZES),
            {"partial_layout": {"a": "rows"}, "mesh_dimension_to_size": {"rows": 0}},
            UsageError,
            "0 devices",
        ),
        (_mesh_graph(), {"final": ["z:0"]}, UsageError, "'z:0'"),
        (_tensorflow_graph([None, 2]), {}, GraphError, "'x:0'"),
        (_tensorflow_graph(None), {}, GraphError, "'x:0'"),
        (MeshGraph([3]), {}, MalformedInputError, "invalid operation"),  # pyright: ignore[reportArgumentType]
        (MeshGraph([Operation("x"), Operation("x")]), {}, MalformedInputError, "unique"),
        (42, {}, UsageError, "int"),
        (None, {}, UsageError, "NoneType"),
    ],
)
def test_invalid_graphs_give_a_one_line_error(
    source: Any, arguments: dict[str, Any], error: type[LowtideError], says: str
) -> None:
    with pytest.raises(error, match=says) as refused:
        MeshTensorflowModel(source, **arguments)
    assert "\n" not in str(refused.value)


def test_any_object_with_the_methods_of_an_interface_is_read() -> None:
    interface = Listed(GOOD, SIZES)
    assert lowtide.read(interface).n_ops == 2
    interface.is_tensor_final = None  # pyright: ignore[reportAttributeAccessIssue]
    with pytest.raises(UsageError):
        lowtide.read(interface)


def test_a_graph_of_tensorflow_is_refused_with_a_hint() -> None:
    """It has no final tensors, and cannot be run here."""

    class Graph(TensorflowGraph):
        def as_graph_def(self) -> None: ...

    graph = Graph(_tensorflow_graph([2, 3]).found)
    with pytest.raises(UsageError, match=r"give lowtide\.mesh_tensorflow\.MeshTensorflowModel\(graph, final="):
        lowtide.open_model(graph)
    assert MeshTensorflowModel(graph).graph.n_ops == len(graph.found)


def test_a_graph_without_operations_has_an_empty_schedule() -> None:
    assert minimize_peak_memory(Listed([], {}), "OPTIMAL") == []
    assert MeshTensorflowModel(Listed([], {})).memory_contents([]) == []


def test_sizes_of_any_shape_are_products() -> None:
    dims = {"a": 2, "b": 3, "c": 5}
    graph = MeshGraph([Operation("x", [Tensor("x:0", MeshShape(dims))])])
    assert tensor_sizes(MeshTensorflowModel(graph)) == {"x:0": 4 * prod(dims.values())}
