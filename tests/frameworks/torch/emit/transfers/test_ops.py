"""The copy ops: any tensor goes to the host and comes back bit-equal, outside PyTorch's CPU allocator."""

import gc
from collections.abc import Callable

import pytest
import torch
from torch._subclasses import FakeTensorMode

from lowtide.frameworks.torch.emit.transfers import COPY_TO_DEVICE, COPY_TO_HOST, WAIT_FOR_COPY
from lowtide.frameworks.torch.internals.host_memory import cpu_host
from lowtide.frameworks.torch.measure.allocation_events import peak_of_call

CPU = torch.device("cpu")
FORMS: dict[str, Callable[[], torch.Tensor]] = {
    "contiguous": lambda: torch.randn(5, 7),
    "transposed": lambda: torch.randn(5, 7).t(),
    "channels last": lambda: torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last),
    "every second column": lambda: torch.randn(6, 8)[:, 1::2],
    "expanded": lambda: torch.randn(4, 1).expand(4, 9),
    "a number": lambda: torch.tensor(2.5),
    "empty": lambda: torch.randn(0, 3),
    "half precision": lambda: torch.randn(33).bfloat16(),
    "truth values": lambda: torch.randn(33) > 0,
    "complex": lambda: torch.randn(9, dtype=torch.complex64),
}


@pytest.mark.parametrize("form", FORMS)
def test_what_comes_back_has_the_bits_and_strides_of_what_left(form: str) -> None:
    source = FORMS[form]()
    copy = COPY_TO_HOST(source)
    WAIT_FOR_COPY(copy, source)
    back = COPY_TO_DEVICE(copy, CPU)
    WAIT_FOR_COPY(back, copy)
    for made in (copy, back):
        assert (made.dtype, made.shape, made.stride()) == (source.dtype, source.shape, source.stride())
        assert torch.equal(made, source)
    assert len({tensor.untyped_storage().data_ptr() for tensor in (source, copy, back)}) == 3 or not source.numel()


def test_copies_count_on_the_host_and_not_on_the_device_until_nobody_holds_them() -> None:
    source = torch.randn(1 << 12)
    gc.collect()
    before = cpu_host.live_bytes
    cpu_host.restart()
    peak, copy = peak_of_call(lambda: COPY_TO_HOST(source), CPU)
    assert peak == 0
    view = copy[3:]
    del copy
    assert cpu_host.live_bytes - before == source.nbytes
    del view
    assert cpu_host.live_bytes == before
    assert cpu_host.peak_bytes - before == source.nbytes


@pytest.mark.parametrize("form", FORMS)
def test_fake_tensors_take_the_form_of_real_ones(form: str) -> None:
    """Compilers get the real form of a copy."""
    source = FORMS[form]()
    real = COPY_TO_DEVICE(COPY_TO_HOST(source), CPU)
    with FakeTensorMode() as mode:
        fake = COPY_TO_DEVICE(COPY_TO_HOST(mode.from_tensor(source)), CPU)
        WAIT_FOR_COPY(fake, fake)
    assert (fake.shape, fake.stride(), fake.dtype, fake.device) == (real.shape, real.stride(), real.dtype, real.device)
