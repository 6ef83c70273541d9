"""Fake tensors, which have a form but no memory: their modes, and tracing programs on them."""
# pyright: reportPrivateUsage=false

import logging
from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from torch._guards import TracingContext, detect_fake_mode, tracing
from torch._subclasses import FakeTensor, FakeTensorMode, fake_tensor
from torch._subclasses.fake_tensor import unset_fake_temporarily
from torch.fx import GraphModule
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode, ShapeEnv

from lowtide.frameworks.torch.internals.provenance import recording_sources, share_sources

DEPENDS_ON_VALUES: tuple[type[Exception], ...] = (
    GuardOnDataDependentSymNode,
    fake_tensor.DataDependentOutputException,
    fake_tensor.DynamicOutputShapeException,
)
"""Errors that tracing raises if a program depends on the values of tensors."""

FakeMode = FakeTensorMode
"""A mode in which new tensors are fake, and ops on fake tensors return fake tensors."""


def is_fake(value: Any) -> bool:
    """Return whether a value is a fake tensor."""
    return isinstance(value, FakeTensor)


def new_fake_mode() -> FakeMode:
    """Return a new mode for fixed shapes."""
    return FakeTensorMode(shape_env=ShapeEnv(), static_shapes=True, allow_non_fake_inputs=True)


def fake_mode_of(tensors: Sequence[torch.Tensor]) -> FakeMode:
    """Return the mode of the fake tensors in a list, or a new one if none has a shape environment."""
    found = detect_fake_mode(list(tensors))
    return found if found is not None and found.shape_env is not None else new_fake_mode()


def faked(mode: FakeMode, tensor: torch.Tensor) -> torch.Tensor:
    """Return a fake tensor of the same form in `mode`; a fake tensor of that mode unchanged."""
    if not isinstance(tensor, FakeTensor):
        return mode.from_tensor(tensor.detach(), static_shapes=True)
    if tensor.fake_mode is mode:
        return tensor
    with mode:
        return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=tensor.device)


def outside_of_fake_modes() -> AbstractContextManager[Any]:
    """Return a context without active fake modes. Ops still find the modes of fake arguments."""
    return unset_fake_temporarily()


@contextmanager
def failures_unlogged() -> Generator[None]:
    """Suppress PyTorch's logs of ops that fail on fake tensors; the caller reports these errors."""
    log = logging.getLogger(fake_tensor.__name__)

    def is_below_errors(record: logging.LogRecord) -> bool:
        return record.levelno < logging.ERROR

    log.addFilter(is_below_errors)
    try:
        yield
    finally:
        log.removeFilter(is_below_errors)


@contextmanager
def forgetting_scalars(mode: FakeMode) -> Generator[None]:
    """Run on fake tensors, and discard the symbols of scalars read from them."""
    shapes = mode.shape_env
    with mode, shapes.ignore_fresh_unbacked_symbols() if shapes else nullcontext():
        yield


def trace_on_fakes(function: Callable[[list[Any]], list[Any]], inputs: list[Any]) -> GraphModule:
    """Trace a function of one flat list on fake tensors; nodes record their source.

    Policies of `torch.utils.checkpoint` apply as in an eager run. By default, tracing passes them on to a compiler and
    saves everything.
    """
    with recording_sources(), torch.compiler._non_strict_tracing_context():
        traced = make_fx(function, tracing_mode="fake", _allow_non_fake_inputs=True)(inputs)
    share_sources(traced.graph)
    return traced


@contextmanager
def tracing_in(mode: FakeMode) -> Generator[None]:
    """Make a mode the one that compilers find in this context."""
    with tracing(TracingContext(mode)):
        yield
