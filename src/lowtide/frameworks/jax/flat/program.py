"""A traced function as one flat list of equations over numbered values."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from jax.extend.core import Literal

Value = int
"""A position in the types of a program."""
Atom = Value | Literal
"""What an equation reads: a value, or a scalar that is written into it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Equation:
    """One application of a primitive."""

    origin: Any
    """The equation of the jaxpr: its primitive, parameters, effects, context and source."""
    inputs: tuple[Atom, ...]
    outputs: tuple[Value, ...]
    call: Any = None
    """The innermost call that it was written out in line from and whose place in the user's code is known."""

    @property
    def kind(self) -> str:
        """The name of the primitive."""
        return self.origin.primitive.name

    @property
    def reads(self) -> tuple[Value, ...]:
        """The values it reads, in argument order."""
        return tuple(atom for atom in self.inputs if isinstance(atom, int))


@dataclass(frozen=True, slots=True, kw_only=True)
class FlatProgram:
    """A flat program: what comes in, equations in a valid order, what goes out."""

    name: str
    types: Sequence[Any]
    """The abstract value (shape and dtype) of every value."""
    constants: Mapping[Value, Any]
    """Arrays that the function closes over."""
    inputs: Sequence[Value]
    equations: Sequence[Equation]
    outputs: Sequence[Atom]
    donated: frozenset[Value] = frozenset()
    """The inputs that the caller gives up."""
