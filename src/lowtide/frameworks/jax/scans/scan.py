"""A scan taken apart: its operands and results by their part in it, and its turns run again."""

from collections.abc import Callable, Sequence
from typing import Any

from lowtide.frameworks.jax.flat.program import Equation
from lowtide.frameworks.jax.internals import jaxpr_as_fun, lax


class Scan:
    """A scan's operands and results by their part in it, and a way to run some of its turns."""

    def __init__(self, equation: Equation) -> None:
        params = equation.origin.params
        n_constants, n_states = params["num_consts"], params["num_carry"]
        self.inputs = equation.inputs
        self.constants = equation.inputs[:n_constants]
        self.states = equation.inputs[n_constants : n_constants + n_states]
        self.slices = equation.inputs[n_constants + n_states :]
        self.last_states = equation.outputs[:n_states]
        self.stacks = equation.outputs[n_states:]
        self.types: Sequence[Any] = params["jaxpr"].in_avals
        self.body: Callable[..., Sequence[Any]] = jaxpr_as_fun(params["jaxpr"])
        self._params = params

    def turns(
        self, constants: Sequence[Any], states: Sequence[Any], slices: Sequence[Any], wanted: Sequence[int], count: int
    ) -> tuple[Sequence[Any], Sequence[Any]]:
        """Run so many turns; return the states after them and the stacks with these numbers."""

        def turn(states: Sequence[Any], slices: Sequence[Any]) -> tuple[list[Any], list[Any]]:
            results = list(self.body(*constants, *states, *slices))
            stacked = results[len(states) :]
            return results[: len(states)], [stacked[number] for number in wanted]

        return self.over(turn, states, list(slices), count, self._params["unroll"])

    def over(
        self, turn: Callable[..., Any], states: Sequence[Any], slices: Any, count: int | None = None, unroll: int = 1
    ) -> Any:
        """Run another function so many times, by default once a turn, in this scan's direction."""
        return lax.scan(
            turn,
            list(states),
            slices,
            length=self._params["length"] if count is None else count,
            reverse=self._params["reverse"],
            unroll=unroll,
        )

    def split(self, values: Sequence[Any]) -> tuple[Sequence[Any], Sequence[Any], Sequence[Any]]:
        """Return values for this scan's operands as constants, states and slices."""
        first, second = len(self.constants), len(self.constants) + len(self.states)
        return values[:first], values[first:second], values[second:]
