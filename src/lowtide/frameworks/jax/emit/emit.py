"""A plan run: kernels in its order, what runs again tied to what ran right before."""

from collections.abc import Mapping, Sequence
from typing import Any

from lowtide.frameworks.jax.emit.kernel import results_of, run_kernel
from lowtide.frameworks.jax.emit.ties import can_anchor, tie
from lowtide.frameworks.jax.flat.program import FlatProgram, Value
from lowtide.frameworks.jax.internals import varying_axes
from lowtide.frameworks.jax.reading.read import JaxTranslation
from lowtide.frameworks.jax.reading.sizes import bytes_of
from lowtide.frameworks.jax.reading.stored import Kernel, fusion_kind
from lowtide.index_spaces import OpId

_MOST_ANCHORS = 1


def run_plan(translation: JaxTranslation, runs: Sequence[OpId], arguments: Sequence[Any]) -> list[Any]:
    """Run a program's kernels in the given sequence, some of them again; under a tracer this emits them.

    What runs again reads the contents that are there then. A kernel that runs again, and reads nothing that ran again
    right before it, is tied to the last kernels that ran for the first time, so that it waits for them.
    """
    program = translation.program
    held: dict[Value, Any] = {**program.constants, **dict(zip(program.inputs, arguments, strict=True))}
    known: dict[Value, Any] = {}
    late: set[Value] = set()
    done: set[OpId] = set()
    fresh: set[Value] = set()
    anchors: list[Any] = []
    since: list[Any] = []
    for op in runs:
        kernel = translation.kernels.kernels[op]
        outputs = program.equations[kernel.root].outputs
        if op in done:
            if since:
                anchors, since = since[-_MOST_ANCHORS:], []
            tied = {} if fresh.intersection(kernel.reads) else _tied(program, kernel, held, anchors)
            results = run_kernel(program, kernel, {**held, **tied}, known, late | tied.keys())
            late.update(outputs)
            fresh.update(outputs)
        else:
            fresh.clear()
            results = run_kernel(program, kernel, held, known, late)
            since += [each for each in results if _is_whole(program, kernel) and can_anchor(each)]
            done.add(op)
        held.update(zip(outputs, results, strict=True))
    return results_of(program, held)


def _tied(program: FlatProgram, kernel: Kernel, held: Mapping[Value, Any], anchors: Sequence[Any]) -> dict[Value, Any]:
    """Return the contents of one value that a kernel reads, tied: the one that takes fewest bytes to copy.

    What is fused into the kernel is not copied at all. A value that is the same along an axis of a mesh waits for such
    anchors only.
    """
    copied = {each: bytes_of(program.types[each]) if each in kernel.direct else 0 for each in kernel.reads}
    for value in sorted(kernel.reads, key=copied.__getitem__):
        axes = varying_axes(held[value])
        alike = [anchor for anchor in anchors if varying_axes(anchor) <= axes]
        if alike:
            return {value: tie(held[value], alike)}
    return {}


def _is_whole(program: FlatProgram, kernel: Kernel) -> bool:
    """Return whether a kernel computes its results as a whole: XLA computes single elements of what it can fuse."""
    return fusion_kind(program.equations[kernel.root].origin) in ("stored", "reduction")
