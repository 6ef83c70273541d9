"""Writing reordered models: whole files, references to weights that still hold, weights that are never read."""

import os
from pathlib import Path
from typing import Any

import onnx
import pytest

from lowtide.core.errors import FingerprintError, InputError, UnsupportedError, UsageError
from lowtide.engine.plan import Plan
from lowtide.onnx import OnnxModel


@pytest.fixture(name="stored")
def stored_fixture(cases: dict[str, Any], tmp_path: Path) -> Path:
    """Give the path of a model whose weights lie in a file beside it."""
    path = tmp_path / "model" / "net.onnx"
    path.parent.mkdir()
    onnx.save(cases["conv_net"].make(), path, save_as_external_data=True, location="weights.bin", size_threshold=0)
    return path


def test_a_saved_model_is_what_apply_gives(case: Any, plan_of: Any, tmp_path: Path) -> None:
    """The file holds the applied model, and says in its metadata that its order is planned."""
    model = OnnxModel(case.make(), case.dims)
    plan = plan_of(model, 7)
    model.save(plan, tmp_path / "out.onnx")
    saved = onnx.load(tmp_path / "out.onnx")
    assert saved.metadata_props.pop().key == "lowtide.planned"
    assert saved == model.apply(plan)


def test_weights_outside_the_file_are_not_needed_to_plan(stored: Path, plan_of: Any) -> None:
    """A model is read, planned and written while its weights are not even there."""
    (stored.parent / "weights.bin").unlink()
    model = OnnxModel(stored)
    model.save(plan_of(model, 1), stored.with_name("out.onnx"))
    assert model.graph.persistent_bytes()["device"] > 8 * 3 * 9 * 4
    kept = onnx.load(stored.with_name("out.onnx"), load_external_data=False)
    assert kept.graph.initializer == onnx.load(stored, load_external_data=False).graph.initializer


def test_a_model_beside_its_weights_runs(stored: Path, plan_of: Any) -> None:
    """References to external data survive, and the model gives the same results from its new file."""
    model = OnnxModel(stored)
    plan = plan_of(model, 1)
    model.save(plan, stored.with_name("out.onnx"))
    again = OnnxModel(stored.with_name("out.onnx"))
    measured = again.measure(Plan.baseline(again.graph))
    assert measured.outputs_equal
    assert measured.after_bytes == model.measure(plan).after_bytes


def test_a_place_that_cannot_reach_the_weights_is_refused(stored: Path, tmp_path: Path) -> None:
    """No file is written whose weights would be missing; with a link to them it is."""
    model = OnnxModel(stored)
    plan = Plan.baseline(model.graph)
    with pytest.raises(UnsupportedError, match=r"weights\.bin"):
        model.save(plan, tmp_path / "out.onnx")
    assert not (tmp_path / "out.onnx").exists()
    os.link(stored.parent / "weights.bin", tmp_path / "weights.bin")
    model.save(plan, tmp_path / "out.onnx")
    assert (tmp_path / "out.onnx").exists()


def test_missing_weights_are_named_before_measuring(stored: Path) -> None:
    """Running needs the weights; the message says which file is not there."""
    (stored.parent / "weights.bin").unlink()
    model = OnnxModel(stored)
    with pytest.raises(InputError, match=r"weights\.bin"):
        model.measure(Plan.baseline(model.graph))


def test_an_object_with_weights_elsewhere_cannot_be_measured(stored: Path) -> None:
    """Without a path nobody knows where the weights lie."""
    model = OnnxModel(onnx.load(stored, load_external_data=False))
    with pytest.raises(UnsupportedError, match="path"):
        model.measure(Plan.baseline(model.graph))


def test_a_failed_save_leaves_no_file(cases: dict[str, Any], tmp_path: Path) -> None:
    """A refused plan or an impossible place leaves nothing behind, whole or half."""
    model = OnnxModel(cases["attention"].make(), {"batch": 1, "length": 4})
    other = OnnxModel(cases["attention"].make(), {"batch": 2, "length": 4})
    with pytest.raises(FingerprintError):
        model.save(Plan.baseline(other.graph), tmp_path / "out.onnx")
    with pytest.raises(UsageError, match="cannot write"):
        model.save(Plan.baseline(model.graph), tmp_path / "missing" / "out.onnx")
    assert list(tmp_path.iterdir()) == []
