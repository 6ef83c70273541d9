"""Inductor: compiling graphs, its configuration and its hooks."""
# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false, reportUnknownVariableType=false

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, Self

import torch
from torch._dynamo.utils import GmWrapper
from torch._guards import TracingContext
from torch._inductor import config
from torch._inductor.custom_graph_pass import CustomKnapsackSolver, CustomPartitionerFn, CustomRuntimeEstimator
from torch.fx import GraphModule

from lowtide.frameworks.torch.internals.aot_autograd import give_saved_away, is_graph_retained, take_overwritten_saves
from lowtide.frameworks.torch.internals.joint_trace import JointTrace
from lowtide.frameworks.torch.internals.nodes import value_of
from lowtide.frameworks.torch.internals.releases import CustomSchedulerPass
from lowtide.frameworks.torch.internals.runtime import marked_boxed

__all__ = ["CustomKnapsackSolver", "CustomPartitionerFn", "CustomRuntimeEstimator", "CustomSchedulerPass"]

Strides = Sequence[tuple[int, ...] | None]
CompilePass = Callable[..., Any]
Split = Callable[[GraphModule, Sequence[Any]], tuple[GraphModule, GraphModule]]
"""Splits a graph into two passes. The first returns one result and the second's inputs."""


class SchedulerPass:
    """A base of scheduler passes, which Inductor copies and uses as cache keys."""

    @property
    def key(self) -> str:
        """Equal for passes with equal effects."""
        return type(self).__name__

    def __deepcopy__(self, memo: object) -> Self:
        return self

    def __reduce__(self) -> tuple[type[str], tuple[str]]:
        return str, (self.key,)


def patched_inductor(changes: dict[str, Any]) -> AbstractContextManager[None]:
    return config.patch(changes)


def overlap_passes() -> list[Any]:
    """Return the user's passes that overlap communication."""
    return list(config.reorder_for_compute_comm_overlap_passes) if config.reorder_for_compute_comm_overlap else []


def lays_images_out(module: GraphModule) -> bool:
    """Return whether Inductor chooses channels-last convolutions."""
    from torch._inductor.graph import GraphLowering  # takes seconds to load

    return GraphLowering.decide_layout_opt(module, is_inference=False)


def compile_fx(
    module: GraphModule,
    inputs: Sequence[Any],
    changes: dict[str, Any],
    split: Split | None = None,
    trace: JointTrace | None = None,
) -> Callable[..., Any]:
    """Compile a captured graph; a retained backward pass copies saved tensors.

    `trace` is shared with other compilations of the graph. With `split`, a graph without gradients becomes two passes
    (`CompileInTwo`) in a function of one list, which it empties.
    """
    from torch._inductor.compile_fx import compile_fx as compile_graph  # takes seconds to load
    from torch._inductor.compile_fx import compile_fx_inner

    def compile_pass(graph: GraphModule, given: Sequence[Any], **others: Any) -> Any:
        compiled = compile_fx_inner(graph, given, **others)
        may_be_retained = others.get("is_backward") and split is None
        return _keeping_saved(compiled, take_overwritten_saves()) if may_be_retained else compiled

    given, passes = _as_split(module, compile_pass, split)
    with nullcontext() if trace is None else trace.shared():
        return compile_graph(given, inputs, passes, config_patches=changes)  # pyright: ignore[reportReturnType]


def _as_split(module: GraphModule, passes: CompilePass, split: Split | None) -> tuple[Any, CompilePass]:
    if split is None:
        return module, passes
    return GmWrapper(module, list), CompileInTwo(split, passes).compile


def _keeping_saved(run: Callable[[list[Any]], Any], overwritten: Sequence[int]) -> Callable[[list[Any]], Any]:
    def run_keeping(inputs: list[Any]) -> Any:
        if is_graph_retained():
            for place in overwritten:
                inputs[place] = _copy_with_strides(inputs[place])
        return run(inputs)

    return marked_boxed(run_keeping) if overwritten else run


def _copy_with_strides(value: torch.Tensor) -> torch.Tensor:
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
    split: Split | None = None,
    trace: JointTrace | None = None,
) -> None:
    """Compile a graph until a scheduler pass ends each pass."""
    from torch._inductor.compile_fx import compile_fx as compile_graph  # takes seconds to load
    from torch._inductor.compile_fx import compile_fx_inner

    def compile_pass(graph: GraphModule, given: Sequence[Any], **others: Any) -> Any:
        compiled = _compiled_unless_ended(lambda: compile_fx_inner(graph, given, **others), take_strides)
        return marked_boxed(_never_run) if compiled is None else compiled

    taken, passes = _as_split(module, compile_pass, split)
    with nullcontext() if trace is None else trace.shared():
        compile_graph(taken, inputs, passes, config_patches=changes)


def _never_run(_inputs: list[Any]) -> None:
    raise AssertionError("this graph was only scheduled, so it has no code")


def _compiled_unless_ended(compile_pass: Callable[[], Any], take_strides: Callable[[], Strides | None]) -> Any:
    """Return a compiled pass, or None with its output strides recorded."""
    try:
        return compile_pass()
    except Exception:
        strides = take_strides()
        if strides is None:
            raise
    context = TracingContext.try_get()
    if context is not None and context.output_strides is not None:
        context.output_strides.extend(strides)
    return None


@dataclass(frozen=True)
class CompileInTwo:
    """Compiles a graph without gradients, such as a training step, as two passes.

    The second pass frees saved values at their last use.
    """

    split: Split
    compile_pass: CompilePass

    def compile(self, graph: GraphModule, given: Sequence[Any], **others: Any) -> Any:
        forward, backward = self.split(graph, given)
        others = {**others, "is_inference": False}
        with TracingContext.report_output_strides() as strides:
            first = self.compile_pass(forward, given, **others)
        placeholders = backward.graph.find_nodes(op="placeholder")
        found = [None] * len(placeholders) if strides is None else strides[1:]
        for node, known in zip(placeholders, found, strict=True):
            node.meta["val"] = _with_strides(value_of(node), known)
        saved = list(map(value_of, placeholders))
        give_saved_away(forward, backward)
        second = self.compile_pass(backward, saved, **{**others, "static_input_idxs": ()}, is_backward=True)

        def run(inputs: list[Any]) -> list[Any]:
            saved = list(first(inputs))
            result = saved.pop(0)
            return [result, *second(saved)]

        return marked_boxed(run)


def _with_strides(value: Any, strides: Sequence[int] | None) -> Any:
    if strides is None or not isinstance(value, torch.Tensor) or value.stride() == tuple(strides):
        return value
    return value.as_strided(value.shape, strides)
