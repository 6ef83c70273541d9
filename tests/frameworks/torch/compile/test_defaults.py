"""Options for compilations that cannot be given any: configured in the program, or in the environment."""

import importlib
import sys
from collections.abc import Iterator

import pytest
import torch
from torch import nn

import lowtide.torch as lt
from lowtide.core.errors import MissingExtraError, UsageError
from lowtide.frameworks.torch.planning.options import Options


@pytest.fixture(autouse=True)
def nothing_configured(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.delenv("LOWTIDE_BUDGET", raising=False)
    lt.configure()
    yield
    lt.configure()


def test_options_of_a_call_come_first_then_what_was_configured_then_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert Options.parse(None).budget is None
    monkeypatch.setenv("LOWTIDE_BUDGET", " 60% ")
    assert Options.parse(None).budget == "60%"
    assert Options.parse({"budget": None}).budget is None
    lt.configure("8 GiB", compiler="eager")
    assert (Options.parse({}).budget, Options.parse({}).compiler) == ("8 GiB", "eager")
    assert (Options.parse({"budget": "50%"}).budget, Options.parse({"budget": "50%"}).compiler) == ("50%", "eager")
    lt.configure(effort="max")
    assert (Options.parse({}).budget, Options.parse({}).compiler) == ("60%", "inductor")


def test_what_is_wrong_is_said_where_it_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    lt.configure("70%")
    with pytest.raises(UsageError, match="no option 'bugdet'"):
        lt.configure(bugdet=1)
    with pytest.raises(UsageError, match="cannot read 'much'"):
        lt.configure("much")
    assert Options.parse({}).budget == "70%"
    lt.configure()
    monkeypatch.setenv("LOWTIDE_BUDGET", "much")
    with pytest.raises(UsageError, match="LOWTIDE_BUDGET in the environment: cannot read 'much'"):
        Options.parse({})


def test_a_model_compiled_without_options_runs_within_the_budget_of_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("LOWTIDE_BUDGET", "80%")
    lt.configure(compiler="eager")
    torch.compiler.reset()
    layers = [layer for _ in range(4) for layer in (nn.Linear(16, 16), nn.Tanh())]
    compiled = torch.compile(nn.Sequential(*layers), backend="lowtide")
    compiled(torch.randn(512, 16)).sum().backward()
    result = lt.explain().programs[-1].result
    assert 0 < result.peak_bytes["cpu"] <= 0.8 * result.baseline_peak_bytes["cpu"]


@pytest.mark.parametrize(
    ("name", "library"),
    [("transformers", "transformers.trainer_callback"), ("lightning", "lightning.pytorch.callbacks")],
)
def test_a_callback_without_its_library_says_what_installs_it(
    name: str, library: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    monkeypatch.delitem(sys.modules, f"lowtide.torch.{name}", raising=False)
    with pytest.raises(MissingExtraError, match=r"pip install 'lowtide\[integrations\]'$"):
        importlib.import_module(f"lowtide.torch.{name}")
