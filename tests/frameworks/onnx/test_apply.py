"""Plans applied to ONNX models: another order, the same results, and nothing else in the file touched."""

from collections import Counter
from collections.abc import Callable
from typing import Any

import onnx
import pytest
from onnx import ModelProto

from lowtide import minimize
from lowtide.core.errors import FingerprintError, UnsupportedError
from lowtide.engine.plan import CopyIn, CopyOut, Plan, Run
from lowtide.onnx import OnnxModel

SEEDS = range(4)


def without_order(model: ModelProto) -> tuple[bytes, list[Counter[bytes]]]:
    """Return everything but the order of the nodes: the emptied model, and the nodes of every graph as a bag."""
    emptied = ModelProto()
    emptied.CopyFrom(model)
    bags: list[Counter[bytes]] = []

    def empty(graph: Any) -> None:
        for node in graph.node:
            for attribute in node.attribute:
                if attribute.HasField("g"):
                    empty(attribute.g)
        bags.append(Counter(node.SerializeToString(deterministic=True) for node in graph.node))
        del graph.node[:]

    empty(emptied.graph)
    return emptied.SerializeToString(deterministic=True), sorted(bags, key=sorted)


@pytest.mark.parametrize("seed", SEEDS)
def test_every_valid_order_gives_a_valid_model(case: Any, plan_of: Callable[..., Plan], seed: int) -> None:
    """The ONNX checker accepts the reordered model."""
    model = OnnxModel(case.make(), case.dims)
    onnx.checker.check_model(model.apply(plan_of(model, seed)), full_check=True)


@pytest.mark.parametrize("seed", SEEDS)
def test_nothing_but_the_order_changes(case: Any, plan_of: Callable[..., Plan], seed: int) -> None:
    """Without its nodes the model is the same byte for byte, and every graph has the same nodes."""
    original = case.make()
    original.doc_string, original.producer_name = "a model", "by hand"
    original.metadata_props.add(key="kept", value="yes")
    original.graph.doc_string = "its graph"
    original.training_info.add().initialization_binding.add(key="a", value="b")
    original = ModelProto.FromString(original.SerializeToString() + b"\xa2\x06\x03new")  # field 100, which nobody knows
    before = original.SerializeToString(deterministic=True)
    model = OnnxModel(original, case.dims)
    reordered = model.apply(plan_of(model, seed))
    assert without_order(reordered) == without_order(original)
    assert b"\xa2\x06\x03new" in reordered.SerializeToString()
    assert original.SerializeToString(deterministic=True) == before


def test_a_plan_that_moves_nothing_changes_no_place(case: Any) -> None:
    """Where no op is said to have moved, the model stays, byte for byte: views, constants and called graphs too."""
    original = case.make()
    model = OnnxModel(original, case.dims)
    unmoved = [Plan.baseline(model.graph)]
    result = minimize(model.graph)
    if not result.moved_ops:
        unmoved.append(result.plan)
    for plan in unmoved:
        assert model.apply(plan).SerializeToString(deterministic=True) == original.SerializeToString(deterministic=True)


def test_a_plan_for_other_sizes_is_refused(cases: dict[str, Any]) -> None:
    """A plan only fits the model and the dimensions it was made for."""
    small = OnnxModel(cases["attention"].make(), {"batch": 1, "length": 10})
    large = OnnxModel(cases["attention"].make(), {"batch": 8, "length": 10})
    with pytest.raises(FingerprintError, match="another graph"):
        large.apply(Plan.baseline(small.graph))


def test_a_plan_that_offloads_is_refused(cases: dict[str, Any]) -> None:
    """An ONNX file has no way to copy between memories."""
    model = OnnxModel(cases["views"].make())
    runs = [Run(op) for op in range(model.graph.n_ops)]
    with pytest.raises(UnsupportedError, match="memories"):
        model.apply(Plan.from_steps(model.graph, [*runs, CopyOut(0, 0), CopyIn(0, 0)]))
