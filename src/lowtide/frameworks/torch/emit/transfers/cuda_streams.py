"""The part that is CUDA's: copies between device and pinned host memory on streams of their own, and waiting for them.

- Two streams per device, one a direction, as a plan's timeline has it: links are full-duplex.
- Pinned memory comes from PyTorch's caching host allocator: a block that died is used again in the next step, but not
  before the copies that were issued on it are complete (`copy_` records an event for its stream). No other pool could
  know when a saved tensor dies. Blocks are powers of two, so pinned memory may exceed what the plan counts.
- Device memory is allocated and freed on the stream that computes. `record_stream` would keep freed memory from being
  used again until somebody asks; instead the stream that computes waits for the copy before its source can die.
"""

import torch

from lowtide.frameworks.torch.internals.tensors import memory_of

_streams: dict[tuple[torch.device, bool], torch.cuda.Stream] = {}
_under_way: dict[int, tuple[torch.cuda.Event, torch.Tensor | None]] = {}
"""By the address of what a copy makes: when it is complete, and a tensor on the device that must not die before."""


def start_copy(source: torch.Tensor, target: torch.device) -> torch.Tensor:
    """Start a copy of what a tensor spans to the host or to a CUDA device, and return it in the tensor's form.

    The copy starts when all is done that the present stream was given so far. Nobody may read it before
    `wait_for_copy`.
    """
    outward = target.type != "cuda"
    device = source.device if outward else target
    compute = torch.cuda.current_stream(device)
    made = torch.empty_strided(
        source.shape, source.stride(), dtype=source.dtype, device=target if outward else device, pin_memory=outward
    )
    stream = _stream(device, outward)
    stream.wait_stream(compute)
    complete = torch.cuda.Event()
    with torch.cuda.stream(stream):
        memory_of(made).copy_(memory_of(source), non_blocking=True)
        complete.record()
    _let_go()
    _under_way[made.data_ptr()] = complete, None if outward else made
    return made


def wait_for_copy(made: torch.Tensor, device: torch.device) -> None:
    """Let the present stream of a device wait until a copy is complete; the host does not wait."""
    event, _ = _under_way.pop(made.data_ptr(), (None, None))
    if event is not None:
        torch.cuda.current_stream(device).wait_event(event)


def _let_go() -> None:
    """Forget copies that are complete: their waits have nothing to wait for, or never come after an exception."""
    for address in [address for address, (event, _) in _under_way.items() if event.query()]:
        del _under_way[address]


def _stream(device: torch.device, outward: bool) -> torch.cuda.Stream:
    if (device, outward) not in _streams:
        _streams[device, outward] = torch.cuda.Stream(device)
    return _streams[device, outward]
