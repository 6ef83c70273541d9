"""The contract of every rewrite: run the programs before and after it, and compare them."""

import ast
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import torch

from lowtide.frameworks.torch import rewrites
from lowtide.frameworks.torch.rewrites.rewrite import Rewrite
from lowtide.frameworks.torch.rewrites.run import run_rewrites
from lowtide.frameworks.torch.rewrites.table import REWRITES
from tests.frameworks.torch.rewrites.examples import example
from tests.frameworks.torch.rewrites.golden import golden_path, golden_text
from tests.frameworks.torch.rewrites.running import planned_layout, run

_FOLDER = Path(rewrites.__file__).parent
_MARKS = ("store-early-values",)
"""Rewrites that insert marks. PyTorch alone runs a mark as a copy."""

every_rewrite = pytest.mark.parametrize("name", REWRITES)


def test_the_table_names_every_rewrite_in_the_folder() -> None:
    found: set[type[Any]] = set()
    for path in _FOLDER.rglob("*.py"):
        classes = [node.name for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.ClassDef)]
        place = path.relative_to(_FOLDER).with_suffix("").parts
        module = import_module(".".join((rewrites.__name__, *place))) if classes else None
        found.update(getattr(module, name) for name in classes)
    assert {kind for kind in found if issubclass(kind, Rewrite)} - {Rewrite} == set(REWRITES.values())
    assert {name: kind.name for name, kind in REWRITES.items()} == {name: name for name in REWRITES}


@every_rewrite
def test_a_rewrite_is_a_frozen_dataclass_with_a_source(name: str) -> None:
    rewrite = example(name).rewrite
    assert is_dataclass(rewrite)
    assert rewrite.source.endswith(".")
    assert rewrite == type(rewrite)(*(getattr(rewrite, field.name) for field in fields(rewrite)))
    with pytest.raises(AttributeError):
        rewrite.name = "other"  # pyright: ignore[reportAttributeAccessIssue]


@every_rewrite
def test_sites_are_found_without_changing_the_program(name: str) -> None:
    given = example(name)
    before = str(given.module.graph), planned_layout(given.module)
    assert given.rewrite.sites(given.module)
    assert (str(given.module.graph), planned_layout(given.module)) == before


@every_rewrite
def test_results_and_overwritten_inputs_have_equal_bits(name: str, digest: Callable[[Any], str]) -> None:
    given = example(name)
    preserves = given.rewrite.preserves
    before = run(given.module, given.given)
    after = run(run_rewrites(given.module, [given.rewrite]), given.given)
    assert not given.differ or preserves.up_to
    assert digest(after.inputs) == digest(before.inputs)
    assert len(after.outputs) == len(before.outputs)
    for place, (was, now) in enumerate(zip(before.outputs, after.outputs, strict=True)):
        equal = digest(was) == digest(now if preserves.outputs else now.view(was.dtype).view(was.shape))
        assert equal or place in given.differ


@every_rewrite
def test_fake_values_share_storages_as_real_values_do(name: str) -> None:
    given = example(name)
    after = run_rewrites(given.module, [given.rewrite])
    real, fake = run(after, given.given).layout, planned_layout(after)
    assert fake.forms == real.forms
    assert name in _MARKS or fake.storages == real.storages


@every_rewrite
def test_unchanged_nodes_keep_their_names(name: str) -> None:
    given = example(name)
    before = {node.name: node.target for node in given.module.graph.nodes}
    after = {node.name: node.target for node in run_rewrites(given.module, [given.rewrite]).graph.nodes}
    kept = before.keys() & after.keys() - {node for node in given.given if not given.rewrite.preserves.inputs}
    assert kept
    assert all(after[name] == before[name] for name in kept)


@every_rewrite
def test_the_graph_before_and_after_is_the_golden_one(name: str) -> None:
    assert golden_text(name) == golden_path(name).read_text(encoding="utf-8")


def test_every_golden_text_has_a_rewrite() -> None:
    assert {path.stem for path in golden_path("any").parent.glob("*.txt")} == set(REWRITES)


def test_saved_values_have_the_contents_read_by_the_forward_pass() -> None:
    given = example("save-old-contents")
    held = given.given["state_1"].clone()
    saved = run(run_rewrites(given.module, [given.rewrite]), given.given).outputs[2:]
    assert all(torch.equal(tensor.view(-1), held.view(-1)) for tensor in saved[:1])
