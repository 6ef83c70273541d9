"""The budget "fit" is the memory that is free now, and changes nothing where the program fits."""

import resource
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import nn

import lowtide.torch as lt
from lowtide.core.errors import UnsupportedError
from lowtide.frameworks.resident import status_bytes
from lowtide.frameworks.torch.planning.free_memory import fit_budget

MIB = 2**20


def network() -> nn.Module:
    """Return a small network whose activations are its largest tensors."""
    torch.manual_seed(0)
    return nn.Sequential(*(layer for _ in range(3) for layer in (nn.Linear(16, 16), nn.GELU())))


def squared(model: nn.Module, rows: torch.Tensor) -> torch.Tensor:
    """Return the mean square of a model's results."""
    return model(rows).square().mean()


@contextmanager
def limited_to(more_bytes: int) -> Generator[None]:
    """Limit the data of this process to its present size and some more."""
    before = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, ((status_bytes("VmData") or 0) + more_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, before)


def compile_within(model: nn.Module, budget: str) -> Any:
    """Return a model compiled by lowtide."""
    return torch.compile(model, backend="lowtide", options={"budget": budget})


@pytest.mark.parametrize("free", [300 * MIB, 600 * MIB])
def test_the_budget_is_the_free_memory_less_a_part_for_the_allocator_with_the_given_tensors(free: int) -> None:
    held = torch.ones(MIB)
    with limited_to(free):
        limit = resource.getrlimit(resource.RLIMIT_DATA)[0]
        found = fit_budget([held, held[:4]]) - 4 * MIB
    assert 0.95 * free - limit / 128 - 8 * MIB <= found <= 0.95 * free


def test_a_step_that_fits_is_unchanged(digest: Callable[[Any], str]) -> None:
    rows = torch.randn(64, 16)
    trained: list[str] = []
    for planned in (False, True):
        model = network()
        optimizer = torch.optim.AdamW(model.parameters())
        step: Any = lt.TrainingStep(model, squared, optimizer)
        if planned:
            step = lt.training_step(model, squared, optimizer, (rows,), budget="fit")
            assert step.result.shortfall is None
            assert step.result.extra_cost == 0
        step(rows)
        trained.append(digest([each.detach() for each in model.parameters()]))
    assert trained[0] == trained[1]


def test_a_step_that_does_not_fit_is_planned_within_the_free_memory() -> None:
    model, rows = network(), torch.empty(2**20, 16)  # each activation takes 64 MiB
    with limited_to(300 * MIB):
        step = lt.training_step(model, squared, torch.optim.SGD(model.parameters()), (rows,), budget="fit")
    (before,), (after,) = step.result.baseline_peak_bytes.values(), step.result.peak_bytes.values()
    assert step.result.shortfall is None
    assert after <= 0.95 * 300 * MIB + 64 * MIB < before


@pytest.mark.usefixtures("quick_inductor")
@pytest.mark.filterwarnings("ignore:.*torch.jit.script_method:DeprecationWarning")  # Inductor's own
def test_a_compiled_program_that_fits_gives_the_results_of_inductor(digest: Callable[[Any], str]) -> None:
    rows, found = torch.randn(64, 16), list[str]()
    for budget in (None, "fit"):
        model = network()
        compiled = torch.compile(model) if budget is None else compile_within(model, budget)
        squared(compiled, rows).backward()
        found.append(digest([each.grad for each in model.parameters()]))
    assert found[0] == found[1]


def test_a_device_whose_free_memory_is_unknown_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="free memory of device 'meta' is unknown"):
        fit_budget([torch.empty(4, device="meta")])
