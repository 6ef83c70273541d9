"""Inductor: compiling a graph with it, its configuration, the hooks that plug into it."""
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch._dynamo.utils import GmWrapper
from torch._inductor import config
from torch._inductor.custom_graph_pass import CustomKnapsackSolver, CustomPartitionerFn, CustomRuntimeEstimator
from torch.fx import GraphModule

from lowtide.frameworks.torch.internals.aot_autograd import is_graph_retained, take_overwritten_saves
from lowtide.frameworks.torch.internals.boxed import marked_boxed
from lowtide.frameworks.torch.internals.forward_last import EndsScheduled, ForwardLast, Strides, is_only_scheduled

try:
    from torch._inductor.custom_graph_pass import CustomSchedulerPass
except ImportError:  # before PyTorch 2.13, passes over kernels are told apart as those over graphs are
    from torch._inductor.custom_graph_pass import CustomGraphPass as CustomSchedulerPass

__all__ = [
    "CustomKnapsackSolver",
    "CustomPartitionerFn",
    "CustomRuntimeEstimator",
    "CustomSchedulerPass",
    "compile_boxed",
    "compile_fx",
    "compile_until_scheduled",
    "lays_images_out",
    "overlap_passes",
    "patched_inductor",
]


def patched_inductor(changes: dict[str, Any]) -> AbstractContextManager[None]:
    """Change Inductor's configuration for a while."""
    return config.patch(changes)


def overlap_passes() -> list[Any]:
    """Return the passes over kernels that the user has Inductor run last, for the overlap with communication."""
    return list(config.reorder_for_compute_comm_overlap_passes) if config.reorder_for_compute_comm_overlap else []


def lays_images_out(module: GraphModule) -> bool:
    """Tell whether Inductor lets the channels of images stand together where convolutions of a program use them."""
    from torch._inductor.graph import GraphLowering  # takes seconds to load

    return GraphLowering.decide_layout_opt(module, is_inference=False)


def compile_fx(
    module: GraphModule, inputs: Sequence[Any], changes: dict[str, Any], end: EndsScheduled | None = None
) -> Callable[..., Any]:
    """Compile a captured graph with Inductor under a changed configuration; with an `end`, see `ForwardLast`.

    A backward pass may overwrite what was saved; where the caller retains the graph, it is given copies of that.
    """
    from torch._inductor.compile_fx import compile_fx as compile_graph  # takes seconds to load
    from torch._inductor.compile_fx import compile_fx_inner

    def compile_pass(graph: GraphModule, given: Sequence[Any], **others: Any) -> Any:
        compiled = compile_fx_inner(graph, given, **others)
        return _keeping_saved(compiled, take_overwritten_saves()) if others.get("is_backward") else compiled

    passes = compile_pass if end is None else ForwardLast(compile_pass, end).compile
    return compile_graph(module, inputs, passes, config_patches=changes)  # pyright: ignore[reportReturnType]


def compile_boxed(
    module: GraphModule, inputs: Sequence[Any], changes: dict[str, Any]
) -> Callable[[list[Any]], Sequence[Any]]:
    """Compile a graph without gradients with Inductor; the function takes one list, which it empties.

    So an input that nobody else holds ends at its last use.
    """
    from torch._inductor.compile_fx import compile_fx as compile_graph  # takes seconds to load

    taking_a_list: Any = GmWrapper(module, list)
    return compile_graph(taking_a_list, inputs, config_patches=changes)  # pyright: ignore[reportReturnType]


def _keeping_saved(run: Callable[[list[Any]], Any], overwritten: Sequence[int]) -> Callable[[list[Any]], Any]:
    def run_keeping(inputs: list[Any]) -> Any:
        if is_graph_retained():
            for place in overwritten:
                inputs[place] = _copy_laid_out_alike(inputs[place])
        return run(inputs)

    return marked_boxed(run_keeping) if overwritten else run


def _copy_laid_out_alike(value: torch.Tensor) -> torch.Tensor:
    """Return a copy with the same strides, as compiled kernels were told."""
    copy = value.clone()
    if copy.stride() == value.stride():
        return copy
    storage = value.untyped_storage().clone()
    return value.new_empty(0).set_(storage, value.storage_offset(), value.size(), value.stride())


def compile_until_scheduled(
    module: GraphModule,
    inputs: Sequence[Any],
    changes: dict[str, Any],
    take_strides: Callable[[], Strides | None],
) -> None:
    """Compile all passes of a captured graph as far as a pass over their kernels lets it; nothing is kept.

    `take_strides` says how the results of a graph lie whose compilation a pass ended, None where none did.
    """
    from torch._inductor.compile_fx import compile_fx as compile_graph  # takes seconds to load
    from torch._inductor.compile_fx import compile_fx_inner

    def compile_pass(graph: GraphModule, given: Sequence[Any], **others: Any) -> Any:
        made: list[Any] = []
        ended = is_only_scheduled(lambda: made.append(compile_fx_inner(graph, given, **others)), take_strides)
        return marked_boxed(_never_run) if ended else made[0]

    compile_graph(module, inputs, compile_pass, config_patches=changes)


def _never_run(_inputs: list[Any]) -> None:
    raise AssertionError("this graph was compiled only as far as its kernels are known")
