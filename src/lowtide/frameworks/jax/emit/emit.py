"""A plan run: kernels in its order, what runs again tied to what ran right before, the order held where asked."""

from collections.abc import Mapping, Sequence
from typing import Any

from lowtide.core.index_spaces import OpId
from lowtide.frameworks.jax.emit.copies import Copies, HostSpace
from lowtide.frameworks.jax.emit.holds import hold
from lowtide.frameworks.jax.emit.kernel import results_of, run_kernel
from lowtide.frameworks.jax.emit.ties import can_anchor, tie
from lowtide.frameworks.jax.emit.windows import Crossing, crossings
from lowtide.frameworks.jax.flat.program import FlatProgram, Value
from lowtide.frameworks.jax.internals import varying_axes
from lowtide.frameworks.jax.reading.read import JaxTranslation
from lowtide.frameworks.jax.reading.sizes import bytes_of
from lowtide.frameworks.jax.reading.stored import Kernel, fusion_kind


def run_plan(
    translation: JaxTranslation,
    runs: Sequence[OpId],
    arguments: Sequence[Any],
    window: int | None = None,
    copies: Copies | None = None,
) -> list[Any]:
    """Run a program's kernels in the given sequence, some of them again; under a tracer this emits them.

    What runs again reads the contents that are there then. A kernel that runs again, and reads nothing that ran again
    right before it, is tied to the last kernel that ran for the first time, so that it waits for it. With a `window`
    the sequence is held, too: XLA may order within so many kernels, and never across (`crossings`); kernels that read
    inputs alone are tied to what was held last. With `copies`, values go to the host's memory space and come back.
    """
    program = translation.program
    held: dict[Value, Any] = {**program.constants, **dict(zip(program.inputs, arguments, strict=True))}
    known: dict[Value, Any] = {}
    late: set[Value] = set()
    done: set[OpId] = set()
    fresh: set[Value] = set()
    newest: Any = None
    gate: Any = None
    held_before = {} if window is None else crossings(translation, runs, window)
    given = {*program.inputs, *program.constants}
    host = HostSpace()
    for place, op in enumerate(runs):
        back = host.carry_out((copies or {}).get(place, ()), held, newest)
        late.update(back)
        fresh.update(back)
        kernel = translation.kernels.kernels[op]
        outputs = program.equations[kernel.root].outputs
        if place in held_before:
            crossing = held_before[place]
            passed = _hold(crossing, held)
            late.update(passed)
            fresh.update(passed)
            gate = next((held[value] for value in reversed(passed) if can_anchor(held[value])), gate)
        is_again = op in done
        tied: dict[Value, Any] = {}
        if gate is not None and given.issuperset(kernel.reads):
            tied = _tied(program, kernel, held, gate)
        elif is_again and fresh.isdisjoint(kernel.reads):
            tied = _tied(program, kernel, held, newest)
        results = run_kernel(program, kernel, {**held, **tied}, known, late | tied.keys())
        if is_again or tied:
            late.update(outputs)
        if is_again:
            fresh.update(outputs)
        else:
            if window is None:
                fresh.clear()
            if _is_whole(program, kernel):
                newest = next((each for each in reversed(results) if can_anchor(each)), newest)
            done.add(op)
        held.update(zip(outputs, results, strict=True))
    host.carry_out((copies or {}).get(len(runs), ()), held, newest)
    return results_of(program, held)


def _hold(crossing: Crossing, held: dict[Value, Any]) -> Sequence[Value]:
    """Put held contents in the place of what passes between two windows; return which.

    A value that is the same along an axis of a mesh can only wait for such values, and is left out where none is there.
    """
    waiting = [held[value] for value in (*crossing.results, *crossing.values)]
    anchors = [each for each in waiting if can_anchor(each)]
    axes = min((varying_axes(anchor) for anchor in anchors), key=len, default=None)
    if axes is None:
        return ()
    values = [value for value in crossing.values if varying_axes(held[value]) >= axes]
    results = [held[value] for value in crossing.results if can_anchor(held[value])]
    alike = [anchor for anchor in (*results, *anchors[-1:]) if varying_axes(anchor) <= axes]
    if not values or not alike:
        return ()
    held.update(zip(values, hold([held[value] for value in values], alike), strict=True))
    return values


def _tied(program: FlatProgram, kernel: Kernel, held: Mapping[Value, Any], anchor: Any) -> dict[Value, Any]:
    """Return the contents of one value that a kernel reads, tied: the one that takes fewest bytes to copy.

    What is fused into the kernel is not copied at all. A value that is the same along an axis of a mesh waits for such
    an anchor only.
    """
    copied = {each: bytes_of(program.types[each]) if each in kernel.direct else 0 for each in kernel.reads}
    for value in sorted(kernel.reads, key=copied.__getitem__):
        if anchor is not None and varying_axes(anchor) <= varying_axes(held[value]):
            return {value: tie(held[value], [anchor])}
    return {}


def _is_whole(program: FlatProgram, kernel: Kernel) -> bool:
    """Return whether a kernel computes its results as a whole: XLA computes single elements of what it can fuse."""
    return fusion_kind(program.equations[kernel.root].origin) in ("stored", "reduction")
