"""PyTorch's own test files with lowtide pointed in from outside: which pass, and why the others do not.

The files are not part of PyTorch's wheel, nor of this project: give the folder they are in. They run as they are, first
with what PyTorch does, which is the yardstick. Tests for a GPU run on the CPU where there is none, their memory
statistics made of the allocator's events.
"""

import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import click
from results import write_section

MODE = "LOWTIDE_IN_TORCH_TESTS"
SOLVERS = ("test_ac.py", "test_ac_knapsack.py")
MODES = {"theirs": "PyTorch", "partition": "ours", "partition 60%": "ours, 60 %", "solver": "our solver"}
_MORE_SIZES = "counts what is saved: the same tensors, but more sizes"
_CALLERS = "counts products that run again: the region's result is the caller's, so nothing needs them again"
_IN_PLACE = "counts ops by their plain form; they run in place"
REASONS = {
    "test_min_cut_partitioner": "counts what is saved: run op by op without a budget, nothing runs again",
    "test_min_cut_partitioner_save_shape": _MORE_SIZES,
    "test_default_partitioner_output_tensor_shape_tensor": _MORE_SIZES,
    "test_min_cut_partitioner_output_tensor_shape_tensor": _MORE_SIZES,
    "test_tags_function": _CALLERS,
    "test_tags_function_via_global_checkpoint": _CALLERS,
    "test_tags_function_with_kwargs": _CALLERS,
    "test_tags_module": _IN_PLACE,
    "test_tags_decomps": _IN_PLACE,
    "test_compile_selective_checkpoint_must_not_recompute_gemm_no_functionalization": _IN_PLACE,
    "test_compile_selective_checkpoint_list_ops": "counts what runs again: with a budget the plan decides that",
}
"""Per test, what it asserts that only PyTorch's own choice gives."""


def pytest_configure() -> None:
    """Point lowtide in before the tests are imported."""
    means, _, budget = os.environ.get(MODE, "theirs").partition(" ")
    _stand_in_for_gpu()
    if means == "partition":
        _our_partitioner(budget or None)
    elif means == "solver":
        _our_solver()


def _our_partitioner(budget: str | None) -> None:
    import functorch.compile
    from torch._dynamo.backends import debugging
    from torch._functorch import config as functorch_config
    from torch._inductor import config

    from lowtide.frameworks.torch.compile.fusion.settings import settings
    from lowtide.frameworks.torch.compile.partitioner import Partitioner
    from lowtide.frameworks.torch.planning.options import Options

    ours = Partitioner(Options(compiler="eager", budget=budget))
    for module in (functorch.compile, debugging):
        for name in ("min_cut_rematerialization_partition", "default_partition"):
            if hasattr(module, name):
                setattr(module, name, ours)
    functorch_config.enable_autograd_cache = False
    for name, value in settings(Options(compiler="inductor", budget=budget)).items():
        setattr(config, name, value)


def _our_solver() -> None:
    from torch._functorch import config
    from torch._functorch._activation_checkpointing import knapsack as theirs

    from lowtide.frameworks.torch.compile.fusion.knapsack import ExactKnapsack, RooflineRuntime, knapsack

    def solve(memory: Sequence[float], runtime: Sequence[float], most: float) -> tuple[float, list[int], list[int]]:
        saved = knapsack(memory, runtime, most)
        rest = [place for place in range(len(memory)) if place not in saved]
        return float(sum(runtime[place] for place in saved)), saved, rest

    theirs.dp_knapsack = theirs.dp_knapsack_sliding_hirschberg = solve
    config.activation_memory_budget_solver = ExactKnapsack()
    config.activation_memory_budget_runtime_estimator = RooflineRuntime()


def _stand_in_for_gpu() -> None:
    import torch
    from torch.testing._internal import inductor_utils

    if not torch.cuda.is_available():
        inductor_utils.GPU_TYPE = "cpu"
        torch.accelerator.memory_stats = _LiveBytes()


class _LiveBytes:
    """Counts the bytes that are allocated and not yet freed, since the first time it was asked."""

    def __init__(self) -> None:
        self._live = 0
        self._profiler: Any = None

    def __call__(self) -> dict[str, int]:
        from torch.profiler import ProfilerActivity, profile

        if self._profiler is not None:
            self._profiler.stop()
            events = self._profiler.profiler.kineto_results.events()
            self._live += sum(event.nbytes() for event in events if event.name() == "[memory]")
        self._profiler = profile(activities=[ProfilerActivity.CPU], profile_memory=True, acc_events=False)
        self._profiler.start()
        return {"requested_bytes.all.current": self._live}


def outcomes(file: Path, mode: str) -> dict[str, str]:
    """Run a test file; per test "passed", "skipped", or its error in one line."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        arguments = ["-p", "torch_own_tests", "-p", "no:cacheprovider", "-c", os.devnull, "-q", f"--junitxml={report}"]
        subprocess.run(
            [sys.executable, "-m", "pytest", *arguments, str(file)],
            cwd=Path(__file__).parent,
            env={**os.environ, MODE: mode, "KINETO_LOG_LEVEL": "99"},
            stdout=subprocess.DEVNULL,
            check=False,
        )
        found: dict[str, str] = {}
        for case in ElementTree.parse(report).iter("testcase"):
            bad = next((part for part in case if part.tag in ("failure", "error")), None)
            skipped = any(part.tag == "skipped" for part in case)
            name = case.get("name", "").removesuffix("_cpu")
            if bad is not None or found.get(name, "passed") == "passed":
                found[name] = _first_line(bad) if bad is not None else "skipped" if skipped else "passed"
    return found


def _first_line(bad: ElementTree.Element) -> str:
    return " ".join(str(bad.get("message", "")).split())[:160]


def _test_of(name: str) -> str:
    return name.partition("_partition_fn")[0]


@click.command()
@click.option("--tests", "folder", required=True, type=click.Path(exists=True, file_okay=False, path_type=Path))
def main(folder: Path) -> None:
    """Run PyTorch's tests below FOLDER and write a section of RESULTS.md."""
    lines: list[str] = []
    for file in sorted(folder.rglob("test_*.py")):
        modes = ["solver"] if file.name in SOLVERS else ["partition", "partition 60%"]
        theirs = outcomes(file, "theirs")
        yardstick = [name for name, outcome in theirs.items() if outcome == "passed"]
        parts = [f"{len(yardstick)} of {len(theirs)} pass with PyTorch's own"]
        notes: dict[str, str] = {}
        for mode in modes:
            ours = outcomes(file, mode)
            passed = [name for name in yardstick if ours.get(name) == "passed"]
            apart = [name for name in yardstick if name not in passed and _test_of(name) in REASONS]
            parts.append(f"{len(passed)} of these with {MODES[mode]}, {len(apart)} not applicable")
            for name in yardstick:
                if name not in passed:
                    test = _test_of(name)
                    notes.setdefault(f"    - `{test}`: {REASONS.get(test) or ours.get(name, 'not run')}", "")
        lines += [f"- `{file.name}`: {'; '.join(parts)}", *notes]
        lines += [f"    - not with PyTorch's own either: `{name}`: {said}" for name, said in theirs.items()
                  if said != "passed"]  # fmt: skip
        click.echo("\n".join(lines[-1 - len(notes) :]))
    command = "python benchmarks/torch_own_tests.py --tests FOLDER_OF_PYTORCH_S_TESTS"
    write_section("PyTorch's own tests", command, "\n".join(lines))


if __name__ == "__main__":
    main()
