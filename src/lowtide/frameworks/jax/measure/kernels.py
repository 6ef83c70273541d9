"""A plan carried out kernel by kernel: each compiled by XLA alone, every array dropped when the plan frees it."""

import warnings
from collections.abc import Sequence, Set
from dataclasses import dataclass
from typing import Any

import numpy as np

from lowtide.engine.plan import Free, Plan, Run
from lowtide.frameworks.jax.emit.kernel import results_of, run_kernel
from lowtide.frameworks.jax.flat.program import Value
from lowtide.frameworks.jax.internals import jit, live_arrays, numpy
from lowtide.frameworks.jax.reading.read import JaxTranslation
from lowtide.frameworks.jax.reading.stored import Kernel


@dataclass(frozen=True, slots=True)
class KernelByKernel:
    """One run under a plan."""

    peak_bytes: int
    """The most bytes that JAX's live arrays held at once, constants left out."""
    results: tuple[bytes, ...]
    """The bits of every result."""


def run_kernels(translation: JaxTranslation, plan: Plan, arguments: Sequence[Any]) -> KernelByKernel:
    """Carry out a plan kernel by kernel and count what JAX's live arrays hold; inputs count, as in the graph."""
    program = translation.program
    stored = {buffer: value for value, buffer in translation.buffers.items()}
    others = live_arrays()  # held, so that none of them goes away while the run is counted
    before = sum(array.nbytes for array in others)
    held: dict[Value, Any] = dict(program.constants)
    for value, argument in zip(program.inputs, arguments, strict=True):
        held[value] = numpy.array(argument, copy=True)
    peak = _live_bytes() - before
    for step in plan.steps():
        if isinstance(step, Run):
            kernel = translation.kernels.kernels[step.op]
            given = {stored[read] for read, _ in step.pairs}
            results = _run_alone(translation, kernel, [held[value] for value in kernel.reads], given)
            for value in given:
                del held[value]
            held.update(zip(program.equations[kernel.root].outputs, results, strict=True))
            del results
            peak = max(peak, _live_bytes() - before)
        elif isinstance(step, Free):
            del held[stored[step.buffer]]
    return KernelByKernel(peak, tuple(np.asarray(each).tobytes() for each in results_of(program, held)))


def _run_alone(
    translation: JaxTranslation, kernel: Kernel, contents: Sequence[Any], given: Set[Value]
) -> Sequence[Any]:
    """Compile one kernel and run it; what is `given` gives its storage to the result where XLA takes it."""

    def kernel_alone(*values: Any) -> Sequence[Any]:
        return run_kernel(translation.program, kernel, dict(zip(kernel.reads, values, strict=True)))

    donated = [place for place, value in enumerate(kernel.reads) if value in given]
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Some donated buffers were not usable")
        return jit(kernel_alone, donate_argnums=donated)(*contents)


def _live_bytes() -> int:
    return sum(array.nbytes for array in live_arrays())
