"""The `torch.compile` backend named "lowtide"."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from torch.fx import GraphModule

from lowtide.core.errors import UsageError
from lowtide.core.progress import showing
from lowtide.frameworks.torch.compile.eager import InferenceCompiler, run_boxed, run_boxed_backward
from lowtide.frameworks.torch.compile.partitioner import Partitioner
from lowtide.frameworks.torch.internals.aot_autograd import naming_inputs, patched_autograd
from lowtide.frameworks.torch.internals.autocast import with_shared_casts
from lowtide.frameworks.torch.internals.compiling import capture_own_modules
from lowtide.frameworks.torch.internals.dynamo import (
    aot_autograd,
    differentiates,
    snapshot_capture,
    watch_skipped_frames,
)
from lowtide.frameworks.torch.internals.fake_strides import strides_as_in_eager
from lowtide.frameworks.torch.planning.free_memory import fit_budget, is_fit, tensors_of
from lowtide.frameworks.torch.planning.missed_budgets import collect_missed_budgets
from lowtide.frameworks.torch.planning.options import Options
from lowtide.frameworks.torch.planning.plan_program import Share
from lowtide.frameworks.torch.planning.planned_program import PlannedModule
from lowtide.frameworks.torch.planning.programs import programs_planned, recording_runs, unregister
from lowtide.frameworks.torch.planning.shared_budget import Recompile, count_skipped_frame, shared_budget_of


def lowtide(
    module: GraphModule,
    example_inputs: Sequence[Any],
    *,
    options: Mapping[str, Any] | None = None,
    mode: str | None = None,
) -> Callable[..., Any]:
    """Compile a graph of TorchDynamo so that its training or inference fits the budget.

    Raises UsageError for unknown options, and for a `mode`, which is Inductor's.
    """
    if mode is not None:
        raise UsageError(f"backend 'lowtide' has no mode {mode!r}; give options instead")
    chosen = _chosen_options(options, example_inputs)
    recompile = _recompiler(module, chosen)
    with showing(chosen.progress), programs_planned() as programs, collect_missed_budgets() as missed:
        compiled = _compile(module, example_inputs, chosen)
    shared = shared_budget_of(options, chosen)
    graph = shared.add(programs, compiled, recompile, missed, has_gradients=differentiates(module))
    return recording_runs(graph, lambda: graph.planned)


def _chosen_options(given: Mapping[str, Any] | None, example_inputs: Sequence[Any]) -> Options:
    chosen = Options.parse(given)
    if not is_fit(chosen.budget):
        return chosen
    shared = shared_budget_of(given, chosen)
    if is_fit(shared.options.budget):
        shared.options = replace(chosen, budget=fit_budget(tensors_of(example_inputs)))
    return shared.options


def _compile(
    module: GraphModule,
    example_inputs: Sequence[Any],
    options: Options,
    share: Share | None = None,
    name: str | None = None,
) -> Callable[..., Any]:
    with naming_inputs(module):
        if options.compiler == "inductor":
            from lowtide.frameworks.torch.compile.with_inductor import compile_with_inductor

            return compile_with_inductor(module, example_inputs, options, share, name)
        compiled = aot_autograd(
            fw_compiler=run_boxed,
            bw_compiler=run_boxed_backward,
            inference_compiler=InferenceCompiler(options),
            partition_fn=Partitioner(options, share=share, name=name),
            keep_inference_input_mutations=True,
        )
        off = {"backward_pass_autocast": "off"}  # like eager PyTorch outside of autocast
        with patched_autograd(off), strides_as_in_eager():
            return compiled(with_shared_casts(module), example_inputs)


def _recompiler(module: GraphModule, options: Options) -> Recompile | None:
    """Return a function that compiles a graph again within a share of the budget; None if pointless.

    It returns None if compiling adds guards, which nothing would check.
    """
    captured = None if options.budget is None or options.plans is not None else snapshot_capture(module)
    if captured is None:
        return None

    def recompile(share: Share, before: list[PlannedModule]) -> tuple[Callable[..., Any], list[PlannedModule]] | None:
        (old,), n_guards = before, captured.n_guards
        with captured.compiling() as (module, inputs), programs_planned() as programs, collect_missed_budgets():
            compiled = _compile(module, inputs, options, share, old.name)
        is_guarded = captured.n_guards == n_guards
        unregister(before if is_guarded else programs)
        return (compiled, programs) if is_guarded else None

    return recompile


watch_skipped_frames("lowtide", count_skipped_frame)
capture_own_modules("lowtide")
