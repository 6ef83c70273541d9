"""One turn of a scan and the turn of its backward scan that reads what was saved there, as one program."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from lowtide.frameworks.jax.flat.flatten import flatten
from lowtide.frameworks.jax.flat.program import Atom, FlatProgram, Value
from lowtide.frameworks.jax.internals import ShapeDtypeStruct, make_jaxpr
from lowtide.frameworks.jax.scans.pairs import ScanPair
from lowtide.frameworks.jax.scans.scan import Scan


@dataclass(frozen=True, slots=True, kw_only=True)
class JointTurn:
    """A turn there and back. Its inputs and results by their part in the two scans."""

    program: FlatProgram
    forward: Scan
    backward: Scan
    constants: Sequence[Value]
    """What the forward scan reads whole."""
    states: Sequence[Value]
    slices: Sequence[Value]
    back: Sequence[Value]
    """Inputs that only the backward scan has: what it reads whole, its state, and slices of `others`."""
    others: Sequence[Atom]
    """The backward scan's stacks of the outer program that are not in `saved`, in their order."""
    wanted: Sequence[int]
    """Numbers of the forward scan's stacks that are read elsewhere too."""

    @property
    def forward_results(self) -> Sequence[Atom]:
        """The state after the turn, then what is collected in the wanted stacks."""
        return self.program.outputs[: len(self.states) + len(self.wanted)]

    @property
    def backward_results(self) -> Sequence[Atom]:
        """What the turn of the backward scan returns."""
        return self.program.outputs[len(self.states) + len(self.wanted) :]


def joint_turn(program: FlatProgram, pair: ScanPair) -> JointTurn:
    """Trace a turn of a pair there and back; raises NameError where its body talks along an axis of a mesh."""
    forward, backward = Scan(program.equations[pair.forward]), Scan(program.equations[pair.backward])
    n_states = len(forward.states)
    number_of: dict[Atom, int] = {value: number for number, value in enumerate(forward.stacks) if value in pair.saved}
    wanted = [number for number, value in enumerate(forward.stacks) if value not in pair.saved]
    first_slice = len(backward.constants) + len(backward.states)
    is_other = [not isinstance(atom, int) or atom not in number_of for atom in backward.slices]
    back_types = [
        *backward.types[:first_slice],
        *(aval for aval, other in zip(backward.types[first_slice:], is_other, strict=True) if other),
    ]
    count = len(forward.types)

    def turn(*values: Any) -> list[Any]:
        results = list(forward.body(*values[:count]))
        whole, others = values[count : count + first_slice], iter(values[count + first_slice :])
        slices = [
            next(others) if other else results[n_states + number_of[atom]]
            for atom, other in zip(backward.slices, is_other, strict=True)
        ]
        kept = [results[n_states + number] for number in wanted]
        return [*results[:n_states], *kept, *backward.body(*whole, *slices)]

    avals = [*forward.types, *back_types]
    structs = [ShapeDtypeStruct(aval.shape, aval.dtype, weak_type=aval.weak_type) for aval in avals]
    joint = flatten(make_jaxpr(turn)(*structs), f"{program.name}/turn")
    constants, states, slices = forward.split(joint.inputs[:count])
    return JointTurn(
        program=joint,
        forward=forward,
        backward=backward,
        constants=constants,
        states=states,
        slices=slices,
        back=joint.inputs[count:],
        others=[atom for atom, other in zip(backward.slices, is_other, strict=True) if other],
        wanted=wanted,
    )
