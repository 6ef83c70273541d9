"""Fake tensors: their modes, and tracing on them."""
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

from lowtide.frameworks.torch.internals.fake_strides import strides_as_in_eager
from lowtide.frameworks.torch.internals.provenance import recording_sources, share_sources
from lowtide.frameworks.torch.internals.releases import checkpoints_as_in_eager
from lowtide.frameworks.torch.internals.runtime import autocast_cache

DEPENDS_ON_VALUES: tuple[type[Exception], ...] = (
    GuardOnDataDependentSymNode,
    fake_tensor.DataDependentOutputException,
    fake_tensor.DynamicOutputShapeException,
)
"""Errors of programs that depend on tensor values."""

FakeMode = FakeTensorMode


def is_fake(value: Any) -> bool:
    return isinstance(value, FakeTensor)


def constant_of(tensor: torch.Tensor) -> torch.Tensor | None:
    """Return the contents of a fake tensor computed from numbers alone."""
    return tensor.constant if isinstance(tensor, FakeTensor) else None


def new_fake_mode() -> FakeMode:
    """Return a new mode for fixed shapes."""
    return FakeTensorMode(shape_env=ShapeEnv(), static_shapes=True, allow_non_fake_inputs=True)


def fake_mode_of(tensors: Sequence[torch.Tensor]) -> FakeMode:
    """Return fake tensors' mode with symbolic shapes, or a new one."""
    found = detect_fake_mode(list(tensors))
    return found if found is not None and found.shape_env is not None else new_fake_mode()


def faked(mode: FakeMode, tensor: torch.Tensor) -> torch.Tensor:
    if not isinstance(tensor, FakeTensor):
        return mode.from_tensor(tensor.detach(), static_shapes=True)
    if tensor.fake_mode is mode:
        return tensor
    with mode:
        return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=tensor.device)


def outside_of_fake_modes() -> AbstractContextManager[Any]:
    return unset_fake_temporarily()


@contextmanager
def unlogged(name: str, is_hidden: Callable[[logging.LogRecord], bool]) -> Generator[None]:
    logger = logging.getLogger(name)

    def is_shown(record: logging.LogRecord) -> bool:
        return not is_hidden(record)

    logger.addFilter(is_shown)
    try:
        yield
    finally:
        logger.removeFilter(is_shown)


def failures_unlogged() -> AbstractContextManager[None]:
    return unlogged(fake_tensor.__name__, lambda record: record.levelno >= logging.ERROR)


@contextmanager
def forgetting_scalars(mode: FakeMode) -> Generator[None]:
    """Run on fake tensors, and discard symbols of scalars read."""
    shapes = mode.shape_env
    with strides_as_in_eager(), mode, shapes.ignore_fresh_unbacked_symbols() if shapes else nullcontext():
        yield


def trace_on_fakes(function: Callable[[list[Any]], list[Any]], inputs: list[Any]) -> GraphModule:
    """Trace a function of one flat list; checkpoint policies and autocast's cache act as in eager."""
    caches_casts = torch.is_autocast_cache_enabled()

    def run(given: list[Any]) -> list[Any]:
        with autocast_cache(caches_casts):
            return function(given)

    with recording_sources(), strides_as_in_eager(), checkpoints_as_in_eager():
        traced = make_fx(run, tracing_mode="fake", _allow_non_fake_inputs=True)(inputs)
    share_sources(traced.graph)
    return traced


@contextmanager
def tracing_in(mode: FakeMode) -> Generator[None]:
    with tracing(TracingContext(mode)):
        yield
