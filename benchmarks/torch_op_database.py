"""PyTorch's database of operators and modules, with samples for each, under our partitioner: values against eager.

The database and the check are in the PyTorch wheel (`torch.testing._internal`); what plans is set from outside. They
need the package `expecttest` and are slow to import, so that they are imported where they are used.
"""

import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any
from unittest import SkipTest

import torch
from results import write_section

from lowtide.frameworks.torch.compile.eager import run_boxed, run_boxed_backward
from lowtide.frameworks.torch.compile.partitioner import Partitioner
from lowtide.frameworks.torch.planning.options import Options

SAMPLES = 3
"""How many samples of each entry are run, the first that can be differentiated."""
BUDGETS = (None, "60%")
Run = Callable[[], None]


def operator_runs() -> Iterator[tuple[str, Run]]:
    """Give every operator that can be differentiated, with what checks one sample of it."""
    from torch.testing._internal.common_methods_invocations import op_db
    from torch.testing._internal.optests import aot_autograd as check

    for op in op_db:
        if op.supports_autograd and torch.float32 in op.supported_backward_dtypes("cpu"):
            name = f"{op.name}.{op.variant_test_name}".rstrip(".")
            for sample in islice(op.sample_inputs("cpu", torch.float32, requires_grad=True), SAMPLES):
                yield (
                    name,
                    lambda op=op, sample=sample: check.aot_autograd_check(
                        op.op, [sample.input, *sample.args], sample.kwargs, dynamic=False, check_gradients="auto"
                    ),
                )


def module_runs() -> Iterator[tuple[str, Run]]:
    """Give every module, in training, with what checks one sample of it."""
    from torch.testing._internal.common_modules import module_db
    from torch.testing._internal.optests import aot_autograd as check

    for info in module_db:
        inputs = info.module_inputs_func(info, device="cpu", dtype=torch.float32, requires_grad=True, training=True)
        for given in islice((each for each in inputs if each.forward_input is not None), SAMPLES):
            made, call = given.constructor_input, given.forward_input
            module = info.module_cls(*made.args, **made.kwargs).train()

            def run(module: torch.nn.Module = module, call: Any = call) -> None:
                weights = dict(module.named_parameters())
                function = lambda weights, *args: torch.func.functional_call(module, weights, args, call.kwargs)  # noqa: E731
                check.aot_autograd_check(function, [weights, *call.args], {}, dynamic=False, check_gradients="auto")

            yield info.name, run


def outcomes(runs: Iterator[tuple[str, Run]]) -> dict[str, str]:
    """Run all samples; per entry the first error, or nothing."""
    found: dict[str, str] = {}
    for name, run in runs:
        if found.get(name):
            continue
        torch.manual_seed(0)
        try:
            run()
            found[name] = ""
        except SkipTest:
            continue
        except Exception as error:
            found[name] = f"{type(error).__name__}: {str(error).strip().splitlines()[0][:160] if str(error) else ''}"
    return found


def with_partitioner(budget: str | None) -> list[str]:
    """Let PyTorch's check run our parts; returns a list that fills with what was left to PyTorch's partitioner."""
    from torch.testing._internal.optests import aot_autograd as check

    left: list[str] = []
    ours = Partitioner(Options(compiler="eager", budget=budget))

    def partition(*args: Any, **keywords: Any) -> Any:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            parts = ours(*args, **keywords)
        left.extend(str(each.message) for each in caught if "left to PyTorch" in str(each.message))
        return parts

    compiled = check.compiled_function

    def compile_ours(function: Any, _forward: Any, _backward: Any, **keywords: Any) -> Any:
        return compiled(function, run_boxed, run_boxed_backward, **keywords)

    check.min_cut_rematerialization_partition = partition
    check.compiled_function = compile_ours
    return left


def main() -> None:
    """Run everything under PyTorch's partitioner, then under ours without and with a budget."""
    from torch.testing._internal.optests import aot_autograd as check

    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    originals = check.min_cut_rematerialization_partition, check.compiled_function
    everything = {"operators": operator_runs, "modules": module_runs}
    lines: list[str] = []
    for kind, runs in everything.items():
        check.min_cut_rematerialization_partition, check.compiled_function = originals
        theirs = outcomes(runs())
        for budget in BUDGETS:
            check.min_cut_rematerialization_partition, check.compiled_function = originals
            left = with_partitioner(budget)
            ours = outcomes(runs())
            both = [name for name, error in theirs.items() if not error]
            worse = {name: ours[name] for name in both if ours.get(name)}
            better = sorted(name for name, error in theirs.items() if error and not ours.get(name, error))
            lines.append(
                f"- {kind}, budget {budget}: {len(both)} of {len(theirs)} right under PyTorch's partitioner, "
                f"{len(both) - len(worse)} of these under ours{', and ' * bool(better)}{', '.join(better)}"
            )
            lines += [f"    - `{name}`: {error}" for name, error in worse.items()]
            reasons = Counter(text.partition(": ")[2].partition(": ")[2] for text in left)
            lines += [f"    - left to PyTorch's partitioner {count}x: {reason}" for reason, count in reasons.items()]
            print(lines[-1 - len(worse) - len(reasons)], flush=True)
    write_section("PyTorch's database of operators", "python benchmarks/torch_op_database.py", "\n".join(lines))


if __name__ == "__main__":
    main()
