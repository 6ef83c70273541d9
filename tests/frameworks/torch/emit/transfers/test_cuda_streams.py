"""Copies on a GPU run on their own streams and are complete after their waits."""

import pytest
import torch

from lowtide.frameworks.torch.emit.transfers import COPY_TO_DEVICE, COPY_TO_HOST, WAIT_FOR_COPY

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
N = 1 << 22


def _round_trip(source: torch.Tensor) -> torch.Tensor:
    copy = COPY_TO_HOST(source)
    WAIT_FOR_COPY(copy, source)
    assert copy.is_pinned()
    back = COPY_TO_DEVICE(copy, source.device)
    WAIT_FOR_COPY(back, copy)
    return back


def test_what_is_written_just_before_and_read_just_after_is_the_same() -> None:
    """A copy starts after earlier kernels, and kernels after its wait start after it."""
    device = torch.device("cuda", torch.cuda.current_device())
    for step in range(20):
        source = torch.full((N,), float(step), device=device).mul_(3).add_(1)
        back = _round_trip(source)
        assert torch.equal(back, torch.full((N,), 3.0 * step + 1, device=device))


def test_storage_that_is_freed_after_the_wait_may_be_used_at_once() -> None:
    """The allocator may reuse the source's memory while the copy runs."""
    device = torch.device("cuda", torch.cuda.current_device())
    copies: list[torch.Tensor] = []
    for step in range(8):
        source = torch.full((N,), float(step), device=device)
        copies.append(COPY_TO_HOST(source))
        WAIT_FOR_COPY(copies[-1], source)
        del source
        torch.full((N,), -1.0, device=device)  # reuses the source's storage
    backs = [COPY_TO_DEVICE(copy, device) for copy in copies]
    for step, (copy, back) in enumerate(zip(copies, backs, strict=True)):
        WAIT_FOR_COPY(back, copy)
        assert bool((back == step).all())


def test_a_copy_on_the_host_takes_no_memory_of_the_device() -> None:
    device = torch.device("cuda", torch.cuda.current_device())
    source = torch.ones(N, device=device)
    before = torch.cuda.memory_allocated(device)
    copy = COPY_TO_HOST(source)
    WAIT_FOR_COPY(copy, source)
    assert torch.cuda.memory_allocated(device) == before
    del source
    assert torch.cuda.memory_allocated(device) < before


def test_pinned_memory_is_used_again_in_the_next_step() -> None:
    device = torch.device("cuda", torch.cuda.current_device())
    source = torch.ones(N, device=device)
    _round_trip(source)
    torch.cuda.synchronize(device)
    allocated = torch.cuda.host_memory_stats()["num_host_alloc"]
    for _ in range(5):
        _round_trip(source)
        torch.cuda.synchronize(device)
    assert torch.cuda.host_memory_stats()["num_host_alloc"] == allocated
