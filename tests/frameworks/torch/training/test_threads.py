"""Several threads plan at once as one after another, and one step serves one thread at a time."""

import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier, Event
from typing import Any

import pytest
import torch
from torch import nn

import lowtide.torch as lt
from lowtide.core.errors import UsageError

ENTERED, MAY_GO_ON = Event(), Event()


@torch.library.custom_op("lowtide_tests::wait", mutates_args=())
def wait(x: torch.Tensor) -> torch.Tensor:
    """Return a copy, once the test allows it."""
    ENTERED.set()
    assert MAY_GO_ON.wait(30)
    return x.clone()


wait.register_fake(torch.empty_like)
torch.library.register_autograd("lowtide_tests::wait", lambda _, gradient: gradient)


def plan_step(seed: int) -> Any:
    """Return the plan of a step with dropout and checkpointing, and its first loss."""
    generator = torch.Generator().manual_seed(seed)
    model = nn.Sequential(*(layer for _ in range(2) for layer in (nn.Linear(32 + seed, 32 + seed), nn.GELU())))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) / 8)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    batch = torch.randn(64, 32 + seed, generator=generator)

    def loss(model: nn.Module, x: torch.Tensor) -> torch.Tensor:
        return torch.utils.checkpoint.checkpoint(model, x, use_reentrant=False).square().mean()

    step = lt.training_step(model, loss, optimizer, (batch,), budget="80%", progress=False)
    return step.graph.fingerprint, step.result.peak_bytes, float(step(batch))


def compile_function(seed: int) -> Any:
    """Return the result of a function compiled by the backend."""
    compiled = torch.compile(lambda x: (x.sin() @ x).relu().sum(), backend="lowtide", options={"compiler": "eager"})
    return float(compiled(torch.full((8 + seed, 8 + seed), 0.5)))


def together(calls: list[Callable[[], Any]]) -> list[Any]:
    """Run calls in threads that start at once."""
    barrier = Barrier(len(calls))
    usual = sys.getswitchinterval()

    def run(call: Callable[[], Any]) -> Any:
        barrier.wait()
        return call()

    sys.setswitchinterval(1e-5)
    try:
        with ThreadPoolExecutor(len(calls)) as pool:
            return [each.result() for each in [pool.submit(run, call) for call in calls]]
    finally:
        sys.setswitchinterval(usual)


def test_threads_plan_and_compile_at_once_as_one_after_another() -> None:
    calls = [lambda: plan_step(0), lambda: plan_step(1), lambda: plan_step(2), lambda: compile_function(0)]
    expected = [call() for call in calls]
    torch._dynamo.reset()
    assert together(calls) == expected


def test_a_step_in_use_says_so_and_still_serves_its_own_thread() -> None:
    model = nn.Linear(4, 4)
    step = lt.training_step(
        model, lambda m, x: wait(m(x)).sum(), torch.optim.SGD(model.parameters(), lr=0.1), (torch.ones(2, 4),)
    )
    with ThreadPoolExecutor(1, "worker") as pool:
        running = pool.submit(step, torch.ones(2, 4))
        assert ENTERED.wait(30)
        with pytest.raises(UsageError, match=r"^the training step is in use by thread 'worker_0'; call it from one"):
            step(torch.ones(2, 4))
        MAY_GO_ON.set()
        first = running.result()
    assert step(torch.ones(2, 4)) < first
