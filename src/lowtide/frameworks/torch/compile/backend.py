"""The function that `torch.compile` finds under the name "lowtide"."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch.fx import GraphModule

from lowtide.core.errors import UsageError
from lowtide.frameworks.torch.compile.eager import run_boxed, run_boxed_backward
from lowtide.frameworks.torch.compile.inference import InferenceCompiler
from lowtide.frameworks.torch.compile.missed_budgets import missed_held_back
from lowtide.frameworks.torch.compile.options import Options
from lowtide.frameworks.torch.compile.partitioner import Partitioner
from lowtide.frameworks.torch.compile.plan_program import Share
from lowtide.frameworks.torch.compile.planned_program import PlannedModule
from lowtide.frameworks.torch.compile.program_step import Again, note_skipped, program_of
from lowtide.frameworks.torch.compile.programs import forget, noting_runs, programs_planned
from lowtide.frameworks.torch.internals.aot_autograd import naming_inputs
from lowtide.frameworks.torch.internals.compiling import capture_own_modules
from lowtide.frameworks.torch.internals.dynamo import aot_autograd, snapshot_capture, watch_skipped_frames


def lowtide(
    module: GraphModule,
    example_inputs: Sequence[Any],
    *,
    options: Mapping[str, Any] | None = None,
    mode: str | None = None,
) -> Callable[..., Any]:
    """Compile a graph that TorchDynamo captured, so that its training or inference fits the budget.

    Options are those of `Options`. Raises UsageError for others, and for a `mode`, which is Inductor's.
    """
    if mode is not None:
        raise UsageError(f"backend 'lowtide' knows no mode {mode!r}; give options instead")
    chosen = Options.parse(options)
    again = _again(module, chosen)
    with programs_planned() as programs, missed_held_back() as missed:
        compiled = _compile(module, example_inputs, chosen)
    graph = program_of(options, chosen).add(programs, compiled, again, missed)
    return noting_runs(graph, lambda: graph.planned)


def _compile(
    module: GraphModule,
    example_inputs: Sequence[Any],
    options: Options,
    share: Share | None = None,
    name: str | None = None,
) -> Callable[..., Any]:
    with naming_inputs(module):
        if options.compiler == "inductor":
            from lowtide.frameworks.torch.compile.fusion.compile import compile_with_inductor

            return compile_with_inductor(module, example_inputs, options, share, name)
        return _compile_eagerly(module, example_inputs, options, share, name)


def _compile_eagerly(
    module: GraphModule, example_inputs: Sequence[Any], options: Options, share: Share | None, name: str | None
) -> Callable[..., Any]:
    compiled = aot_autograd(
        fw_compiler=run_boxed,
        bw_compiler=run_boxed_backward,
        inference_compiler=InferenceCompiler(options),
        partition_fn=Partitioner(options, share=share, name=name),
        keep_inference_input_mutations=True,
    )
    return compiled(module, example_inputs)


def _again(module: GraphModule, options: Options) -> Again | None:
    """Return what compiles a graph once more, within a share of the budget; None where nothing would be gained.

    Where that rests on conditions on dynamic sizes that the first compilation did not, which nobody would check any
    more, the graph stays as it was.
    """
    captured = None if options.budget is None or options.plans is not None else snapshot_capture(module)
    if captured is None:
        return None

    def again(share: Share, before: list[PlannedModule]) -> tuple[Callable[..., Any], list[PlannedModule]] | None:
        (old,), n_guards = before, captured.n_guards
        with captured.compiling() as (module, inputs), programs_planned() as programs, missed_held_back():
            compiled = _compile(module, inputs, options, share, old.name)
        is_guarded = captured.n_guards == n_guards
        forget(before if is_guarded else programs)
        return (compiled, programs) if is_guarded else None

    return again


watch_skipped_frames("lowtide", note_skipped)
capture_own_modules("lowtide")
