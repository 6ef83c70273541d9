"""The function that `torch.compile` finds under the name "lowtide"."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch.fx import GraphModule

from lowtide.errors import UsageError
from lowtide.frameworks.torch.compile.eager import run_boxed, run_boxed_backward
from lowtide.frameworks.torch.compile.inference import InferenceCompiler
from lowtide.frameworks.torch.compile.options import Options
from lowtide.frameworks.torch.compile.partitioner import Partitioner
from lowtide.frameworks.torch.compile.programs import noting_runs, programs_planned
from lowtide.frameworks.torch.internals.dynamo import aot_autograd


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
    with programs_planned() as programs:
        compiled = _compile(module, example_inputs, chosen)
    return noting_runs(compiled, programs)


def _compile(module: GraphModule, example_inputs: Sequence[Any], options: Options) -> Callable[..., Any]:
    if options.compiler == "inductor":
        from lowtide.frameworks.torch.compile.fusion.compile import compile_with_inductor

        return compile_with_inductor(module, example_inputs, options)
    compiled = aot_autograd(
        fw_compiler=run_boxed,
        bw_compiler=run_boxed_backward,
        inference_compiler=InferenceCompiler(options),
        partition_fn=Partitioner(options),
        keep_inference_input_mutations=True,
    )
    return compiled(module, example_inputs)
