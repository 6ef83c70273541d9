"""Differences between the supported releases of PyTorch, from 2.11 on."""
# pyright: reportAttributeAccessIssue=false, reportPrivateUsage=false, reportUnknownArgumentType=false
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import torch
from torch.fx.experimental import symbolic_shapes
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.utils import checkpoint

try:
    from torch._inductor.custom_graph_pass import CustomSchedulerPass
except ImportError:  # before 2.13, scheduler passes have the class of graph passes
    from torch._inductor.custom_graph_pass import CustomGraphPass as CustomSchedulerPass

__all__ = ["CustomSchedulerPass"]

ALLOCATORS = ("2.11.", "2.12.", "2.13.", "2.14.", "2.15.")
"""Releases with a CPU allocator like that in `native/torch/registration.cpp`."""


def optimization_hint(size: Any) -> int:
    """Return a size's value, without a guard."""
    if hasattr(symbolic_shapes, "optimization_hint"):
        return symbolic_shapes.optimization_hint(size)
    if not isinstance(size, torch.SymInt):
        return int(size)
    if size.node._hint is not None:
        return int(size.node._hint)
    return hint_of_expression(size.node.shape_env, size.node.expr)


def hint_of_expression(shape_env: ShapeEnv, expression: Any) -> int:
    if hasattr(shape_env, "optimization_hint"):
        return shape_env.optimization_hint(expression)
    from torch._inductor.sizevars import SizeVarAllocator  # in 2.11, only Inductor has hints

    return SizeVarAllocator(shape_env).optimization_hint(expression)


@contextmanager
def checkpoints_as_in_eager() -> Generator[None]:
    """Make checkpoint policies follow eager PyTorch while tracing."""
    if hasattr(torch.compiler, "_non_strict_tracing_context"):
        with torch.compiler._non_strict_tracing_context():
            yield
        return
    original = checkpoint._is_compiling
    checkpoint._is_compiling = _never_compiling
    try:
        yield
    finally:
        checkpoint._is_compiling = original


def _never_compiling(*_call: object) -> bool:
    return False
