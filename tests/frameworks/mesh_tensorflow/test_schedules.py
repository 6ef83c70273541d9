"""Schedules compared with Mesh-TensorFlow's own, on the graphs of its tests, random graphs and its models."""

from typing import Any

import pytest

import lowtide
from lowtide.core.errors import UsageError
from lowtide.engine.analysis import Problem
from lowtide.engine.schedule import scheduler_names
from lowtide.engine.schedule.mesh_list import MeshList
from lowtide.mesh_tensorflow import (
    MeshTensorflowModel,
    compute_memory_contents_under_schedule,
    minimize_peak_memory,
    plan,
)
from tests.frameworks.mesh_tensorflow.interfaces import (
    Listed,
    of_case,
    of_model_record,
    of_order_record,
    records,
    tensor_sizes,
)

MODELS = records("mesh_tensorflow_models.json.gz")
ORDERS = records("mesh_tensorflow_orders.json.gz")
LAYOUT: dict[str, Any] = {
    "partial_layout": {"batch": "rows", "heads": "columns", "d_ff": "columns", "vocab": "columns"},
    "mesh_dimension_to_size": {"rows": 4, "columns": 2},
}

every_model = pytest.mark.parametrize("record", MODELS, ids=lambda record: record["model"])


@pytest.mark.parametrize(
    ("name", "expected"),
    [("mtf_list", [0, 1, 3, 2, 4]), ("mtf_single_use", [1, 2, 0]), ("mtf_zero_use", [0, 1, 2])],
)
def test_list_gives_the_orders_that_mesh_tensorflow_tests_its_own_for(name: str, expected: list[int]) -> None:
    assert minimize_peak_memory(of_case(name), "LIST") == expected


@pytest.mark.parametrize("method", ["NAIVE", "LIST", "OPTIMAL"])
def test_every_method_runs_writers_before_readers(method: str) -> None:
    schedule = minimize_peak_memory(of_case("mtf_topo"), method)
    assert sorted(schedule[:2]) == [0, 1]
    assert sorted(schedule[2:]) == [2, 3]


def test_memory_contents_are_those_of_mesh_tensorflow() -> None:
    interface = of_case("mtf_memory_contents")
    ids = {name: place for place, name in enumerate(interface.ops)}
    for order, last in ((["X", "Y", "Z1", "Z2"], ["X", "Y", "Z1", "Z2"]), (["X", "Y", "Z2", "Z1"], ["X", "Y", "Z1"])):
        contents = compute_memory_contents_under_schedule(interface, [ids[name] for name in order])
        held = [["X"], ["X", "Y"], ["X", "Y", order[2]], last]
        assert contents == [{tensor for name in names for tensor in interface.ops[name][1]} for names in held]


def test_list_never_needs_more_than_the_order_of_mesh_tensorflow_on_random_graphs() -> None:
    for record in ORDERS:
        interface = of_order_record(record)
        model = MeshTensorflowModel(interface)
        assert model.peak_bytes(minimize_peak_memory(interface, "LIST")) <= model.peak_bytes(record["order"])


def test_contents_and_peaks_are_those_of_a_slow_simulation_on_random_graphs() -> None:
    for record in ORDERS[::5]:
        interface = of_order_record(record)
        model = MeshTensorflowModel(interface)
        contents = interface.contents(record["order"])
        assert model.memory_contents(record["order"]) == contents
        assert model.peak_bytes(record["order"]) == max(sum(interface.sizes[t] for t in held) for held in contents)


@every_model
def test_on_its_models_every_peak_is_known_and_none_is_above_that_of_mesh_tensorflow(record: dict[str, Any]) -> None:
    """Naive and LIST peaks equal the recorded ones; the best order is proven optimal."""
    interface = of_model_record(record)
    model = MeshTensorflowModel(interface)
    assert model.peak_bytes(minimize_peak_memory(interface, "NAIVE")) == record["naive_peaks"][0]
    assert model.peak_bytes(record["list_order"]) == record["list_peaks"][0]
    assert model.operation_ids(MeshList(original=True).order(Problem(model.graph))) == record["list_order"]
    assert model.peak_bytes(minimize_peak_memory(interface, "LIST")) <= record["list_peaks"][0]
    ids, result = plan(interface)
    assert model.peak_bytes(ids) == result.peak_bytes["device"] == result.lower_bound_bytes["device"]
    assert result.status == "optimal"
    assert model.peak_bytes(ids) <= min(record["list_peaks"][0], record["naive_peaks"][0])


@every_model
def test_on_one_device_of_a_mesh_the_peaks_are_those_of_mesh_tensorflow(record: dict[str, Any]) -> None:
    interface = of_model_record(record)
    model = MeshTensorflowModel(interface, **LAYOUT)
    assert tensor_sizes(model) == interface.on_device
    assert model.peak_bytes(range(len(interface.ops))) == record["naive_peaks"][1]
    assert model.peak_bytes(record["list_order"]) == record["list_peaks"][1]
    best = minimize_peak_memory(interface, "OPTIMAL", **LAYOUT)
    assert model.peak_bytes(best) <= min(record["naive_peaks"][1], record["list_peaks"][1])


@pytest.mark.parametrize("name", scheduler_names())
def test_every_scheduler_gives_each_operation_once(name: str) -> None:
    assert sorted(minimize_peak_memory(of_case("mtf_list"), name)) == [0, 1, 2, 3, 4]


def test_an_unknown_method_is_refused_with_those_there_are() -> None:
    with pytest.raises(UsageError, match="mesh-list"):
        minimize_peak_memory(of_case("mtf_list"), "GREEDY")


def test_operations_in_no_valid_order_are_scheduled_by_their_own_ids() -> None:
    forward = of_case("mtf_list")
    backward = Listed(
        [(name, *forward.ops[name]) for name in reversed(forward.ops)], forward.sizes, list(forward.final)
    )
    names = list(backward.ops)
    for method in ("NAIVE", "LIST", "OPTIMAL"):
        seen: set[str] = set()
        for operation in minimize_peak_memory(backward, method):
            assert seen.issuperset(backward.ops[names[operation]][0])
            seen.update(backward.ops[names[operation]][1])


@pytest.mark.parametrize(
    "schedule", [[], [0, 1, 2], [0, 1, 2, 3, 3], [2, 0, 1, 3, 4], [0, 1, 2, 3, 5], [-1, 0, 1, 2, 3]]
)
def test_invalid_schedules_are_refused(schedule: list[int]) -> None:
    model = MeshTensorflowModel(of_case("mtf_list"))
    with pytest.raises(UsageError, match="the id of each operation once"):
        model.memory_contents(schedule)
    with pytest.raises(UsageError, match="the id of each operation once"):
        model.peak_bytes(schedule)


def test_a_plan_of_lowtide_becomes_operation_ids() -> None:
    interface = of_case("mtf_single_use")
    result = lowtide.minimize(lowtide.read(interface))
    ids = lowtide.apply(result.plan, interface)
    assert MeshTensorflowModel(interface).peak_bytes(ids) == result.peak_bytes["device"] == 10
