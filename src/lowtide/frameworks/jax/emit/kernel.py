"""One kernel computed: its equations, from the contents of what it reads."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from lowtide.frameworks.jax.flat.program import Atom, FlatProgram, Value
from lowtide.frameworks.jax.flat.run import read, run_equation
from lowtide.frameworks.jax.reading.stored import Kernel


def run_kernel(
    program: FlatProgram,
    kernel: Kernel,
    contents: Mapping[Value, Any],
    known: dict[Value, Any] | None = None,
    late: Collection[Value] = (),
) -> Sequence[Any]:
    """Run the equations of a kernel and return what its root computes.

    `known` remembers what was computed on the way for other kernels that compute it too; what depends on values in
    `late`, whose contents change between runs, is neither taken from there nor put there.
    """
    values = {value: contents[value] for value in kernel.reads}
    changing = set(late)
    for position in kernel.within[:-1]:
        equation = program.equations[position]
        keeps = known if changing.isdisjoint(equation.reads) else None
        if keeps is None:
            changing.update(equation.outputs)
        elif all(value in keeps for value in equation.outputs):
            values.update((value, keeps[value]) for value in equation.outputs)
            continue
        results = run_equation(equation, [read(atom, values) for atom in equation.inputs])
        values.update(zip(equation.outputs, results, strict=True))
        if keeps is not None:
            keeps.update(zip(equation.outputs, results, strict=True))
    root = program.equations[kernel.root]
    return run_equation(root, [read(atom, values) for atom in root.inputs])


def results_of(program: FlatProgram, held: Mapping[Value, Any]) -> list[Any]:
    """Return a program's results from the contents of stored values: literals, those contents, or views of them."""
    makers = {value: equation for equation in program.equations for value in equation.outputs}
    seen = dict(held)

    def result(atom: Atom) -> Any:
        if isinstance(atom, int) and atom not in seen:
            maker = makers[atom]
            results = run_equation(maker, [result(each) for each in maker.inputs])
            seen.update(zip(maker.outputs, results, strict=True))
        return read(atom, seen)

    return [result(atom) for atom in program.outputs]
