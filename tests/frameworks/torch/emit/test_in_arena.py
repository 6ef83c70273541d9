"""Functions in an arena return plain results with less memory, for any shapes, threads and lifetimes."""

import gc
import json
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from random import Random
from typing import Any

import pytest
import torch
from torch import nn

import lowtide.torch as lt
from lowtide.core.errors import UnsupportedError
from lowtide.frameworks.torch.internals import allocators


def _layers(width: int = 32) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(*(part for _ in range(4) for part in (nn.Linear(width, width), nn.GELU()))).requires_grad_(
        False
    )


def _batch(rows: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(rows, 32, generator=torch.Generator().manual_seed(seed))


def test_calls_after_the_first_are_served_with_equal_bits() -> None:
    """Each input form is recorded once. Results that the caller keeps do not change."""
    layers = _layers()
    placed = lt.in_arena(layers)
    batches = [_batch(rows, seed) for seed in range(4) for rows in (64, 100)]
    kept = [(placed(batch), layers(batch)) for batch in batches]
    assert all(torch.equal(mine, plain) for mine, plain in kept)
    assert (placed.use.recorded, placed.use.served, placed.use.fallbacks.total()) == (2, 6, 0)
    assert 0 < placed.arena.size_bytes <= placed.reserved_bytes


def test_a_planned_step_in_an_arena_trains_as_the_plain_one() -> None:
    """Losses and parameters are bit-equal, also with state from the first call."""

    def trained(wrap: Callable[[Any], Any]) -> tuple[list[float], list[torch.Tensor], Any]:
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Dropout(0.1), nn.Linear(64, 1))
        optimizer = torch.optim.AdamW(model.parameters())
        batch = _batch(256), torch.zeros(256, 1)
        plain = lt.training_step(model, lambda net, x, y: (net(x) - y).square().mean(), optimizer, batch, budget="80%")
        step = wrap(plain)
        return [float(step(*batch)) for _ in range(6)], list(model.parameters()), step

    losses, parameters, placed = trained(lt.in_arena)
    expected, plain, _ = trained(lambda step: step)
    assert losses == expected
    assert all(torch.equal(one, other) for one, other in zip(parameters, plain, strict=True))
    assert placed.use.served >= 2


def test_sizes_that_depend_on_data_fall_back_and_are_counted() -> None:
    """A call with other allocations than the recorded ones is correct."""

    def positive(x: torch.Tensor) -> torch.Tensor:
        return (x[x > 0] * 2).sin().sum() + x.cos().sum()

    placed = lt.in_arena(positive)
    for seed in range(8):
        assert torch.equal(placed(_batch(50, seed)), positive(_batch(50, seed)))
    assert placed.use.fallbacks.total() > 0
    assert placed.use.recorded + placed.use.served + placed.use.fallbacks.total() == 8


def test_functions_that_share_an_arena_need_the_largest_of_them() -> None:
    """A nested call finds the arena in use, allocates ordinarily, and is correct."""
    layers = _layers()
    first = lt.in_arena(layers)
    second = lt.in_arena(lambda x: first(layers(x)), arena=first.arena)
    for _ in range(3):
        first(_batch(64))
        assert torch.equal(second(_batch(64)), layers(layers(_batch(64))))
    assert first.use.fallbacks["arena in use"] > 0
    assert first.arena.live_blocks == 0


class _StopError(Exception):
    """Raised during a call."""


def test_no_sequence_of_calls_corrupts_anything() -> None:
    """Shapes, threads, errors, gradients and kept results in random order."""
    layers = _layers().requires_grad_(True)

    def work(x: torch.Tensor, stop: bool, backward: bool) -> torch.Tensor:
        hidden = layers(x)
        if stop:
            raise _StopError
        if backward:
            return torch.autograd.grad(hidden.square().sum(), list(layers.parameters()))[0]
        return hidden.detach()

    random = Random(0)
    placed = [lt.in_arena(work)]
    placed.append(lt.in_arena(work, arena=placed[0].arena))
    kept: list[tuple[torch.Tensor, torch.Tensor]] = []

    def once(number: int) -> None:
        rows, stop, backward = random.choice((16, 33, 64)), random.random() < 0.1, random.random() < 0.5
        x = _batch(rows, number)
        try:
            mine = random.choice(placed)(x, stop, backward)
        except _StopError:
            return
        kept.append((mine, work(x, stop=False, backward=backward)))

    with ThreadPoolExecutor(2) as threads:
        list(threads.map(once, range(200)))
    arena = placed[0].arena
    placed.clear()
    gc.collect()
    assert all(torch.equal(mine, plain) for mine, plain in kept)
    assert arena.live_blocks == 0


def test_measured_peaks_are_those_of_the_plain_step() -> None:
    """The profiler counts tensors in an arena. A step that never ran can be measured."""
    torch.manual_seed(0)
    model = _layers().requires_grad_(True)
    step = lt.training_step(
        model, lambda net, x: net(x).square().mean(), torch.optim.Adam(model.parameters()), (_batch(512),)
    )
    plain, inside = (
        lt.measure(step, _batch(512), timed_calls=1),
        lt.measure(lt.in_arena(step), _batch(512), timed_calls=1),
    )
    assert inside.measured_peak_bytes == plain.measured_peak_bytes
    assert plain.arena_bytes is None
    assert inside.arena_bytes == pytest.approx(inside.predicted_peak_bytes, rel=0.25)
    assert not step.step.optimizer.state


_GROWTH = """
import json, torch
import lowtide.torch as lt
from lowtide.frameworks.resident import ResidentGrowth
layers = torch.nn.Sequential(*(part for _ in range(6) for part in (torch.nn.Linear(256, 256), torch.nn.GELU())))
batch = torch.randn(16384, 256)
optimizer = torch.optim.SGD(layers.parameters(), lr=0.1)
loss = lambda net, x: net(x).square().mean()
placed = lt.in_arena(lt.training_step(layers, loss, optimizer, (batch,), budget="60%"))
placed(batch)
growth = ResidentGrowth()
for _ in range(3):
    placed(batch)
print(json.dumps([growth.highest_bytes(), placed.reserved_bytes, placed.use.served]))
"""


def test_resident_memory_grows_by_the_arena() -> None:
    """Within a tenth, in a separate process, if the system reports it."""
    ended = subprocess.run([sys.executable, "-c", _GROWTH], capture_output=True, text=True, check=True)
    growth, reserved, served = json.loads(ended.stdout)
    assert served == 3
    if growth is not None:
        assert growth == pytest.approx(reserved, rel=0.1)


def test_another_pytorch_is_refused_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """The interface between PyTorch and an allocator is known only for some versions."""
    monkeypatch.setattr(torch, "__version__", "2.99.0")
    with pytest.raises(UnsupportedError, match=r"PyTorch 2\.99\.0; arenas need"):
        allocators.replace_cpu_allocator.__wrapped__()
