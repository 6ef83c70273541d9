"""State of a large parameter, whose update is in chunks of rows: it is on the device in these rows only."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import lowtide.torch as lt
from lowtide.frameworks.torch.emit.state_copies import STATE_TO_DEVICE, finish_copies
from lowtide.frameworks.torch.internals.host_memory import cpu_host

N_ROWS, WIDTH = 4096, 128


def make_embeddings() -> tuple[nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Embedding(N_ROWS, WIDTH), nn.Linear(WIDTH, WIDTH), nn.Tanh(), nn.Linear(WIDTH, 16))
    return model, torch.optim.AdamW(model.parameters())


def random_rows(seed: int = 0) -> torch.Tensor:
    return torch.randint(0, N_ROWS, (64,), generator=torch.Generator().manual_seed(seed))


def _loss(model: nn.Module, batch: torch.Tensor) -> torch.Tensor:
    return model(batch).pow(2).mean()


def test_a_large_state_is_on_the_device_in_rows_with_equal_bits(digest: Callable[[Any], str]) -> None:
    """The device holds less than one state beside the parameters; the peak is as predicted."""
    traces: list[list[str]] = []
    for planned in (True, False):
        model, optimizer = make_embeddings()
        step: Any = lt.TrainingStep(model, _loss, optimizer)
        held = sum(parameter.nbytes for parameter in model.parameters())
        if planned:
            allow = ("reorder", "share", "recompute", "offload")
            options: Any = {"budget": f"{int(1.7 * held)}B", "allow": allow, "host_bandwidth": "25 GB/s"}
            step = lt.training_step(model, _loss, optimizer, (random_rows(),), effort="fast", **options)
            result = step.result
            assert result.state_on_host_bytes >= 2 * N_ROWS * WIDTH * 4
            assert result.peak_bytes["cpu"] < N_ROWS * WIDTH * 4
            assert result.transfers.state_bytes_out == result.state_on_host_bytes
        traces.append(
            [digest([step(random_rows(seed)), model.state_dict(), optimizer.state_dict()]) for seed in range(3)]
        )
        if planned:
            measured = step.measure()
            assert measured.outputs_equal
            assert measured.after_bytes == pytest.approx(step.result.peak_bytes["cpu"], rel=0.02)
    assert traces[0] == traces[1]


def test_an_exception_loses_no_row_that_was_changed_on_the_device() -> None:
    state = cpu_host.empty_like(torch.empty(4, WIDTH)).fill_(1.0)
    on_device = [STATE_TO_DEVICE(state[row : row + 1], torch.device("cpu")) for row in (1, 2)]
    on_device[0].add_(1.0)
    finish_copies([state])
    assert state[:, 0].tolist() == [1.0, 2.0, 1.0, 1.0]
