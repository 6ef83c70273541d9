"""`transposed_bytes`: copies of operands of convolutions in the layout of XLA's CPU kernels."""

from collections.abc import Mapping, Sequence

from lowtide.frameworks.jax.flat.program import Equation, FlatProgram, Value
from lowtide.frameworks.jax.internals import jax
from lowtide.frameworks.jax.reading.kernels import CONVOLUTIONS, VIEWS, is_repeated
from lowtide.frameworks.jax.reading.sizes import bytes_of


def transposed_bytes(equation: Equation, program: FlatProgram, makers: Mapping[Value, int]) -> int:
    """Return the bytes of transposed operands that XLA stores while a convolution runs; 0 except on CPUs.

    The CPU kernels read images as (batch, space, features) and filters as (space, in, out). A gradient of filters reads
    both in other orders. An operand that XLA computes while it transposes takes the place of the operand.
    """
    if equation.kind not in CONVOLUTIONS or jax.default_backend() != "cpu":
        return 0
    dimensions = equation.origin.params["dimension_numbers"]
    batch, features, *space = dimensions.lhs_spec
    outputs, inputs, *filter_space = dimensions.rhs_spec
    orders = (batch, *space, features), (*filter_space, inputs, outputs)
    return sum(
        bytes_of(var.aval)
        for atom, var, order in zip(equation.inputs, equation.origin.invars, orders, strict=True)
        if _is_moved(order, var.aval.shape) and not _is_computed_again(atom, program, makers)
    )


def _is_moved(order: Sequence[int], shape: Sequence[int]) -> bool:
    wide = [axis for axis in order if shape[axis] > 1]
    return wide != sorted(wide)


def _is_computed_again(atom: object, program: FlatProgram, makers: Mapping[Value, int]) -> bool:
    while isinstance(atom, int) and atom in makers:
        maker = program.equations[makers[atom]]
        if maker.kind not in VIEWS:
            return is_repeated(maker, program.equations, makers)
        atom = maker.inputs[0]
    return False
