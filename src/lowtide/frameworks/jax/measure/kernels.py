"""Run a plan kernel by kernel."""

import warnings
from collections.abc import Sequence, Set
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lowtide.engine.plan import Free, Plan, Run
from lowtide.frameworks.jax.emit.run_plan import results_of, run_kernel
from lowtide.frameworks.jax.flat.program import Value
from lowtide.frameworks.jax.internals import jax
from lowtide.frameworks.jax.reading.kernels import Kernel
from lowtide.frameworks.jax.reading.read import JaxTranslation


@dataclass(frozen=True, slots=True)
class KernelByKernel:
    peak_bytes: int
    """Peak of live arrays, without constants."""
    results: tuple[NDArray[Any], ...]


def run_kernels(translation: JaxTranslation, plan: Plan, arguments: Sequence[Any]) -> KernelByKernel:
    """Run a plan with each kernel compiled separately, and count JAX's live arrays, inputs included."""
    program = translation.program
    stored = {buffer: value for value, buffer in translation.buffers.items()}
    others = jax.live_arrays()  # kept alive, so that the count of other arrays stays constant
    before = sum(array.nbytes for array in others)
    contents: dict[Value, Any] = dict(program.constants)
    for value, argument in zip(program.inputs, arguments, strict=True):
        contents[value] = jax.numpy.array(argument, copy=True)
    peak = _live_bytes() - before
    for step in plan.steps():
        if isinstance(step, Run):
            kernel = translation.kernels.kernels[step.op]
            donated = {stored[read] for read, _ in step.pairs}
            results = _run_separately(translation, kernel, [contents[value] for value in kernel.reads], donated)
            for value in donated:
                del contents[value]
            contents.update(zip(translation.equation(step.op).outputs, results, strict=True))
            del results
            peak = max(peak, _live_bytes() - before)
        elif isinstance(step, Free):
            del contents[stored[step.buffer]]
    return KernelByKernel(peak, tuple(np.asarray(each).copy() for each in results_of(program, contents)))


def _run_separately(
    translation: JaxTranslation, kernel: Kernel, arguments: Sequence[Any], donated: Set[Value]
) -> Sequence[Any]:
    """Run one kernel; XLA may put the result in the storage of `donated` values."""

    def one_kernel(*values: Any) -> Sequence[Any]:
        return run_kernel(translation.program, kernel, dict(zip(kernel.reads, values, strict=True)))

    argnums = [place for place, value in enumerate(kernel.reads) if value in donated]
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Some donated buffers were not usable")
        return jax.jit(one_kernel, donate_argnums=argnums)(*arguments)


def _live_bytes() -> int:
    return sum(array.nbytes for array in jax.live_arrays())
