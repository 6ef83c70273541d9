"""Inductor: compiling a graph with it, its configuration, the hooks that plug into it."""
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

from torch._inductor import config
from torch._inductor.custom_graph_pass import (
    CustomKnapsackSolver,
    CustomPartitionerFn,
    CustomRuntimeEstimator,
    CustomSchedulerPass,
)
from torch.fx import GraphModule

__all__ = [
    "CustomKnapsackSolver",
    "CustomPartitionerFn",
    "CustomRuntimeEstimator",
    "CustomSchedulerPass",
    "compile_fx",
    "overlap_passes",
    "patched_inductor",
]


def patched_inductor(changes: dict[str, Any]) -> AbstractContextManager[None]:
    """Change Inductor's configuration for a while."""
    return config.patch(changes)


def overlap_passes() -> list[Any]:
    """Return the passes over kernels that the user has Inductor run last, for the overlap with communication."""
    return list(config.reorder_for_compute_comm_overlap_passes) if config.reorder_for_compute_comm_overlap else []


def compile_fx(module: GraphModule, inputs: Sequence[Any], changes: dict[str, Any]) -> Callable[..., Any]:
    """Compile a captured graph with Inductor under a changed configuration."""
    from torch._inductor.compile_fx import compile_fx as compile_graph  # takes seconds to load

    return compile_graph(module, inputs, config_patches=changes)  # pyright: ignore[reportReturnType]
