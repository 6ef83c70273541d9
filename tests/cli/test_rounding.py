"""Rounding allowed on the command line: the pages say what is equal to rounding, and that is no failure."""

import json
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import Command

PROGRAM = """
import torch
from torch.nn import functional

import lowtide.torch

torch.manual_seed(0)
tokens = torch.randint(0, 4099, (1024,))
model = torch.nn.Embedding(4099, 64, dtype=torch.bfloat16)


def loss(model, tokens):
    return functional.cross_entropy(torch.tanh(model(tokens)) @ model.weight.T, tokens.roll(1))


def step():
    return lowtide.torch.TrainingStep(model, loss, torch.optim.SGD(model.parameters(), lr=10.0)), (tokens,)
"""
ROUNDED = ("--allow", "reorder,share,rounding", "--effort", "fast")


@pytest.fixture
def half(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A training step in half precision; returns its name."""
    (tmp_path / "half_precision.py").write_text(PROGRAM)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "half_precision", raising=False)
    return "half_precision:step"


def test_a_step_to_rounding_succeeds_and_both_pages_say_how_near_it_is(lowtide: Command, half: str) -> None:
    done = lowtide("optimize", half, "--measure", *ROUNDED)
    assert done.code == 0
    assert "results          equal to rounding" in done.stdout
    assert "outputs equal    to rounding: they differ by " in done.stdout
    fields = json.loads(lowtide("optimize", half, "--measure", *ROUNDED, "--json").stdout)
    assert (fields["to_rounding"], fields["outputs_near"], fields["outputs_equal"]) == (True, True, False)
    assert 0 < fields["largest_difference"] < 0.1
    page = lowtide("report", half, "--measure", *ROUNDED, "--text")
    assert "outputs equal to rounding" in page.stdout


def test_a_curve_has_no_use_for_rounding(lowtide: Command, half: str) -> None:
    done = lowtide("plan", half, "--curve", *ROUNDED)
    assert done.code == 2
    assert "technique 'rounding' would be ignored: --curve knows recomputation only" in done.stderr
