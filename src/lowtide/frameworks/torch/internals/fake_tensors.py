"""Fake tensors, which have a form and no memory: their mode, and tracing programs on them."""
# pyright: reportPrivateUsage=false, reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

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
"""What tracing raises where a program depends on the values of tensors."""

FakeMode = FakeTensorMode
"""While it is on, tensors that are made are fake, and ops give fake tensors for fake tensors."""


def is_fake(value: Any) -> bool:
    """Tell whether a value is a tensor that has a form and no memory."""
    return isinstance(value, FakeTensor)


def new_fake_mode() -> FakeMode:
    """Return a mode of its own, for shapes that stay as they are."""
    return FakeTensorMode(shape_env=ShapeEnv(), static_shapes=True, allow_non_fake_inputs=True)


def fake_mode_of(tensors: Sequence[torch.Tensor]) -> FakeMode:
    """Return the mode of the fake tensors among some tensors, a new one where there is none that knows symbols."""
    found = detect_fake_mode(list(tensors))
    return found if found is not None and found.shape_env is not None else new_fake_mode()


def faked(mode: FakeMode, tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor's fake stand-in in a mode; a fake tensor of that mode as it is."""
    if not isinstance(tensor, FakeTensor):
        return mode.from_tensor(tensor.detach(), static_shapes=True)
    if tensor.fake_mode is mode:
        return tensor
    with mode:
        return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=tensor.device)


def outside_of_fake_modes() -> AbstractContextManager[Any]:
    """Put aside the fake modes that are on: those of fake tensors that are given are found by the tensors."""
    return unset_fake_temporarily()


@contextmanager
def failures_unlogged() -> Generator[None]:
    """Keep PyTorch from logging the tracebacks of ops that fail on fake tensors, which whoever catches them words."""
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
    """Run on fake tensors; scalars that are read from them meanwhile leave no trace behind."""
    shapes = mode.shape_env
    with mode, shapes.ignore_fresh_unbacked_symbols() if shapes else nullcontext():
        yield


def trace_on_fakes(function: Callable[[list[Any]], list[Any]], inputs: list[Any]) -> GraphModule:
    """Return the ops that a function of one flat list runs on fake tensors, as a graph; nodes know their source.

    Policies of `torch.utils.checkpoint` are followed as an eager run does; else PyTorch takes them for notes to a
    compiler and saves all.
    """
    with recording_sources(), torch.compiler._non_strict_tracing_context():
        traced = make_fx(function, tracing_mode="fake", _allow_non_fake_inputs=True)(inputs)
    share_sources(traced.graph)
    return traced


@contextmanager
def tracing_in(mode: FakeMode) -> Generator[None]:
    """Let compilers find the mode of the fake tensors that they are given."""
    with tracing(TracingContext(mode)):
        yield
