"""Notes of a plan in the metadata of nodes: read back by onnx, ignored by ONNX Runtime."""

from pathlib import Path
from typing import Any

import onnx
import pytest

import lowtide
from lowtide.api.opening import check_annotated, open_model
from lowtide.core.errors import UsageError
from lowtide.frameworks.onnx.measure import measure_peak
from lowtide.frameworks.onnx.running.inputs import random_inputs
from lowtide.frameworks.outputs import largest_difference
from lowtide.onnx import OnnxModel
from tests.frameworks.onnx.test_reruns import planned, skip_connection


def _without_notes(model: onnx.ModelProto) -> onnx.ModelProto:
    bare = onnx.ModelProto.FromString(model.SerializeToString())
    del bare.metadata_props[:]
    for node in bare.graph.node:
        del node.metadata_props[:]
    return bare


def _notes(node: onnx.NodeProto) -> dict[str, str]:
    return {entry.key: entry.value for entry in node.metadata_props}


def test_notes_change_nothing_else_and_runs_are_bit_equal(case: Any, plan_of: Any, tmp_path: Path) -> None:
    """The annotated file is valid, is the applied model but for its metadata, and gives the same bits."""
    model = OnnxModel(case.make(), case.dims)
    plan = plan_of(model, 3)
    path = tmp_path / "noted.onnx"
    lowtide.onnx.save(plan, case.make(), path, case.dims, annotate=True)
    onnx.checker.check_model(path)
    noted, applied = onnx.load(path), model.apply(plan)
    assert _without_notes(noted) == _without_notes(applied)
    inputs = random_inputs(applied, case.dims)
    runs = [measure_peak(each, inputs, dims=case.dims) for each in (noted, applied)]
    assert largest_difference(runs[0].outputs, runs[1].outputs) == 0


def test_every_run_has_its_step_its_live_bytes_and_its_address(cases: dict[str, Any], tmp_path: Path) -> None:
    """Steps count up, the largest of the live bytes is the peak, and addresses are those of the plan."""
    model = OnnxModel(cases["conv_net"].make())
    plan = lowtide.minimize(model.graph).plan
    model.save_annotated(plan, tmp_path / "noted.onnx")
    noted = onnx.load(tmp_path / "noted.onnx")
    notes = [found for node in noted.graph.node if (found := _notes(node))]
    assert [int(found["lowtide.step"]) for found in notes] == sorted(int(found["lowtide.step"]) for found in notes)
    assert max(int(found["lowtide.live_bytes"]) for found in notes) == sum(plan.peak_bytes.values())
    lies = {(model.graph.buffer_names[each.buffer], each.offset) for each in plan.addresses}
    for text in (text for found in notes for text in found.get("lowtide.addresses", "").split("; ") if text):
        name, _, rest = text.partition(" at ")
        assert (name, int(rest.partition(",")[0])) in lies
    over = {f"{b} over {a}" for _, _, pairs in plan.taken_pairs() for a, b in _named(model, pairs)}
    assert {text for found in notes for text in found.get("lowtide.in_place", "").split("; ") if text} == over
    whole = {entry.key: entry.value for entry in noted.metadata_props}
    assert int(whole["lowtide.peak_bytes"]) == sum(plan.peak_bytes.values())


def _named(model: OnnxModel, pairs: Any) -> list[tuple[str, str]]:
    names = model.graph.buffer_names
    return [(names[old], names[new]) for old, new in pairs]


def test_a_node_that_runs_again_says_so(tmp_path: Path) -> None:
    """The second of two nodes that compute the same is marked."""
    model = OnnxModel(skip_connection())
    least = sum(lowtide.minimize(model.graph).peak_bytes.values())
    plan = planned(model, least * 3 // 4).plan
    model.save_annotated(plan, tmp_path / "noted.onnx")
    again = [_notes(node).get("lowtide.run_again") for node in onnx.load(tmp_path / "noted.onnx").graph.node]
    assert sum(each == "1" for each in again) == len(plan.order()) - model.graph.n_ops > 0


def test_where_there_is_no_room_for_notes_they_are_refused(cases: dict[str, Any], tmp_path: Path) -> None:
    """A plan file, or a program of another format, is not written without the notes that were asked for."""
    path = tmp_path / "model.onnx"
    onnx.save(cases["conv_net"].make(), path)
    with pytest.raises(UsageError, match=r"give an \.onnx MODEL and OUTPUT"):
        check_annotated(open_model(path), tmp_path / "out.plan.json")
    with pytest.raises(UsageError, match=r"give an \.onnx MODEL and OUTPUT"):
        check_annotated(open_model(lowtide.GraphBuilder("g").build()), tmp_path / "out.graph.json")
    check_annotated(open_model(path), tmp_path / "out.onnx")
