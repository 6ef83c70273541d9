"""An exception in the middle of a planned step: its note names what has changed, and all else is as before."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import lowtide.torch as lt

WIDTH = 64
N_LAYERS = 8
UNCHANGED = "failed before its first update; parameters and optimizer state are unchanged"

_fails = {"forward": False, "backward": False}


@torch.library.custom_op("lowtide_tests::may_fail", mutates_args=())
def _may_fail(value: torch.Tensor, place: str) -> torch.Tensor:
    if _fails[place]:
        raise RuntimeError("out of luck")
    return value.clone()


@_may_fail.register_fake
def _(value: torch.Tensor, place: str) -> torch.Tensor:
    return torch.empty_like(value)


def _backward(_: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
    return _may_fail(gradient, "backward"), None


_may_fail.register_autograd(_backward)


class _MayFail(nn.Module):
    def forward(self, value: torch.Tensor) -> torch.Tensor:
        return _may_fail(value, "forward")


@pytest.fixture(autouse=True)
def _nothing_fails_later() -> Any:
    yield
    _fails.update(forward=False, backward=False)


def _made() -> tuple[nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(0)
    layers: list[nn.Module] = [part for _ in range(N_LAYERS) for part in (nn.Linear(WIDTH, WIDTH), nn.Tanh())]
    model = nn.Sequential(*layers[:2], _MayFail(), *layers[2:])
    return model, torch.optim.AdamW(model.parameters())


def _batch(seed: int = 0) -> torch.Tensor:
    return torch.randn(16, WIDTH, generator=torch.Generator().manual_seed(seed))


def _loss(model: nn.Module, batch: torch.Tensor) -> torch.Tensor:
    return model(batch).pow(2).mean()


def _planned(model: nn.Module, optimizer: torch.optim.Optimizer, *, on_host: bool, **more: Any) -> lt.PlannedStep:
    """Return a step in a budget that needs state on the host, or one without a budget."""
    held = sum(parameter.nbytes for parameter in model.parameters())
    allow = ("reorder", "share", "recompute", "offload")
    options: Any = {"budget": f"{int(1.7 * held)}B", "allow": allow, "host_bandwidth": "25 GB/s"} if on_host else {}
    return lt.training_step(model, _loss, optimizer, (_batch(),), effort="fast", **options, **more)


def _fail(step: lt.PlannedStep, place: str) -> str:
    """Let a call fail; return the note of its exception."""
    _fails[place] = True
    with pytest.raises(RuntimeError, match="out of luck") as raised:
        step(_batch())
    _fails[place] = False
    (note,) = raised.value.__notes__
    return note


def _contents(model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, list[torch.Tensor]]:
    """Return copies of each parameter and its state."""
    return {
        name: [value.detach().clone() for value in (own, *optimizer.state[own].values())]
        for name, own in model.named_parameters()
    }


@pytest.mark.parametrize("on_host", [True, False], ids=["state on host", "state on device"])
def test_a_call_that_fails_before_its_first_update_changes_nothing(on_host: bool, digest: Callable[[Any], str]) -> None:
    """The next calls have the bits of a run without the exception."""
    traces: list[list[str]] = []
    for fails in (True, False):
        model, optimizer = _made()
        step = _planned(model, optimizer, on_host=on_host)
        step(_batch(1))
        if fails:
            assert UNCHANGED in _fail(step, "forward")
        step(_batch(2))
        traces.append([digest([model.state_dict(), optimizer.state_dict()])])
    assert traces[0] == traces[1]


@pytest.mark.parametrize("on_host", [True, False], ids=["state on host", "state on device"])
def test_a_call_that_fails_later_names_the_parameters_that_it_updated(on_host: bool) -> None:
    """No other parameter has changed, and none of their state."""
    model, optimizer = _made()
    step = _planned(model, optimizer, on_host=on_host)
    step(_batch(1))
    before = _contents(model, optimizer)
    note = _fail(step, "backward")
    after = _contents(model, optimizer)
    changed = [name for name in before if not all(map(torch.equal, before[name], after[name]))]
    assert 0 < len(changed) <= len(before) - 2  # the failed op computes the gradients of the first layer
    assert f"begun to update {len(changed)} of {len(before)} parameters" in note
    assert changed[0] in note


def test_a_failed_call_of_an_accumulating_step_drops_its_gradients(digest: Callable[[Any], str]) -> None:
    """The next call starts a step: its results are those of a step without the failed one."""
    traces: list[list[str]] = []
    for fails in (True, False):
        model, optimizer = _made()
        step = _planned(model, optimizer, on_host=False, accumulate=2)
        if fails:
            step(_batch(5))
            note = _fail(step, "forward")
            assert UNCHANGED in note
            assert "the next call starts a step" in note
        for seed in (1, 2):
            step(_batch(seed))
        traces.append([digest([model.state_dict(), optimizer.state_dict()])])
    assert traces[0] == traces[1]


def test_training_resumes_from_a_checkpoint_after_an_exception(digest: Callable[[Any], str]) -> None:
    """The next steps have the bits of a run without the exception."""
    traces: list[list[str]] = []
    for fails in (True, False):
        model, optimizer = _made()
        step = _planned(model, optimizer, on_host=True)
        step(_batch(1))
        if fails:
            saved = copy.deepcopy((model.state_dict(), optimizer.state_dict()))
            _fail(step, "backward")
            model.load_state_dict(saved[0])
            optimizer.load_state_dict(saved[1])
        step(_batch(2))
        traces.append([digest([model.state_dict(), optimizer.state_dict()])])
    assert traces[0] == traces[1]
