"""Options of the backend are checked in one line before anything is traced."""

import re
import warnings

import pytest
import torch
from torch import nn

from lowtide.core.errors import UsageError
from lowtide.engine.costs import price
from lowtide.frameworks.torch.planning.options import Options
from tests.oracles.residual_chain import residual_chain


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"bugdet": "1 GiB"}, "no option 'bugdet'; it takes budget"),
        ({"compiler": "gcc"}, "unknown compiler 'gcc'; choose one of inductor, eager"),
        ({"allow": ["sleep"]}, "unknown technique 'sleep'; choose one of reorder"),
        ({"effort": "much"}, "unknown effort 'much'"),
        ({"costs": "cheap"}, "unknown costs 'cheap'"),
    ],
)
def test_what_does_not_exist_is_refused(given: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Options.parse(given)


def test_nothing_runs_again_without_a_budget() -> None:
    assert "recompute" not in Options.parse({"compiler": "eager"}).techniques
    assert "recompute" in Options.parse({"compiler": "eager", "budget": "50%"}).techniques


def test_torch_compile_finds_the_backend_by_its_name() -> None:
    assert "lowtide" in torch._dynamo.list_backends(exclude_tags=())  # pyright: ignore[reportPrivateUsage]


def test_nothing_goes_to_the_host_unasked() -> None:
    assert "offload" not in Options.parse({"budget": "50%"}).techniques
    asked = {"allow": ["reorder", "offload"], "host_bandwidth": "25 GB/s", "host_capacity": "64 GiB"}
    assert "offload" in Options.parse({"budget": "50%", **asked}).techniques
    with pytest.raises(UsageError, match=r"technique 'offload' would be ignored: .* give a budget"):
        Options.parse(asked)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"host_bandwidth": "25 GB/s"}, "add 'offload' to allow"),
        ({"host_capacity": "8 GiB", "allow": ["recompute"]}, "add 'offload' to allow"),
        ({"host_bandwidth": "fast", "allow": ["offload"]}, "cannot read 'fast' as a bandwidth"),
        ({"host_bandwidth": 0, "allow": ["offload"]}, "more than 0"),
        ({"host_capacity": "much", "allow": ["offload"]}, "cannot read 'much' as a size"),
    ],
)
def test_a_host_that_makes_no_sense_is_refused(given: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Options.parse(given)


@pytest.mark.usefixtures("quick_inductor")
@pytest.mark.parametrize("compiler", ["eager", "inductor"])
def test_a_budget_below_the_parameters_is_one_warning_with_the_least_found_and_the_program_runs(compiler: str) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(*(nn.Sequential(nn.Linear(8, 8), nn.GELU()) for _ in range(3)))
    batch = torch.ones(4, 8)
    torch.compiler.reset()
    compiled = torch.compile(model, backend="lowtide", options={"budget": "16 B", "compiler": compiler})
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = compiled(batch)
        found.sum().backward()
    said = [str(warning.message) for warning in caught if "lowtide" in str(warning.message)]
    assert len(said) == 1
    assert re.search(r"persistent buffers need .* the best plan found needs another \d+", said[0])
    torch.testing.assert_close(found, model(batch))


def test_under_inductor_prices_are_worth_less_than_those_of_ops_alone() -> None:
    graph = residual_chain(4)
    fused, eager = Options(compiler="inductor"), Options(compiler="eager")
    assert fused.settings.prices(graph).precision > eager.settings.prices(graph).precision == 0.0
    assert fused.settings.prices(graph).seconds.tolist() == price(graph, "fused").seconds.tolist()
