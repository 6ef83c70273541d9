"""Pairs of scans written anew so that they save other values: what is not saved is computed again turn by turn."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from lowtide.frameworks.jax.flat.program import Atom, Equation, FlatProgram, Value
from lowtide.frameworks.jax.flat.run import run_program
from lowtide.frameworks.jax.flat.splice import Splice
from lowtide.frameworks.jax.scans.choice import choose_saved
from lowtide.frameworks.jax.scans.pairs import ScanPair, apart, scan_pairs
from lowtide.frameworks.jax.scans.turns import JointTurn, joint_turn


def with_saved(program: FlatProgram, chosen: Mapping[ScanPair, tuple[JointTurn, Collection[Value]]]) -> FlatProgram:
    """Return a program that computes the same, whose pairs of scans save these values of their joint turns.

    No equation may be in two pairs. The two scans run the same equations on the same values as before, those that make
    what is not saved in both.
    """
    forward = {pair.forward: pair for pair in chosen}
    backward = {pair.backward: pair for pair in chosen}
    splice = Splice(program)
    stacks: dict[ScanPair, Mapping[Value, Atom]] = {}
    for position, equation in enumerate(program.equations):
        if position in forward:
            pair = forward[position]
            stacks[pair] = _write_forward(splice, *chosen[pair])
        elif position in backward:
            pair = backward[position]
            _write_backward(splice, chosen[pair][0], stacks[pair])
        else:
            splice.keep(equation)
    return splice.done()


@dataclass(frozen=True, slots=True, kw_only=True)
class SavingProgram:
    """A program whose scans save within a limit."""

    program: FlatProgram
    saved_bytes: int
    """What they save, in all turns."""
    is_least: bool
    """Whether none of them can save less."""


def saving_program(program: FlatProgram, limit: int) -> SavingProgram | None:
    """Return a program whose scans save so many bytes for their backward scans, each its share of them.

    None for a program without such scans. What is not saved is computed again turn by turn; which values, planning
    chooses (`choose_saved`).
    """
    pairs = apart(scan_pairs(program))
    total = sum(pair.saved_bytes for pair in pairs)
    chosen: dict[ScanPair, tuple[JointTurn, Collection[Value]]] = {}
    saved, is_least = 0, True
    for pair in pairs:
        try:
            joint = joint_turn(program, pair)
        except NameError:  # a collective, which JAX traces only where its axis has a name
            continue
        found = choose_saved(program, joint, limit * pair.saved_bytes // total // pair.length)
        chosen[pair] = joint, found.values
        saved += pair.length * found.bytes_a_turn
        is_least &= not found.fits
    if not chosen:
        return None
    return SavingProgram(program=with_saved(program, chosen), saved_bytes=saved, is_least=is_least)


def _write_forward(splice: Splice, joint: JointTurn, saved: Collection[Value]) -> Mapping[Value, Atom]:
    """Append the forward scan; return the stacks of what it saves, slices it was given among them."""
    scan, inputs = joint.forward, [*joint.constants, *joint.states, *joint.slices]
    made = [value for value in sorted(saved) if value not in joint.slices]
    turn = _part(joint.program, inputs, [*joint.forward_results, *made], ())

    def forward(*values: Any) -> list[Any]:
        constants, states, slices = scan.split(values)

        def one(states: Sequence[Any], slices: Sequence[Any]) -> Any:
            results = run_program(turn, [*constants, *states, *slices])
            return results[: len(states)], results[len(states) :]

        after, stacks = scan.over(one, states, list(slices))
        return [*after, *stacks]

    results = splice.trace(forward, scan.inputs)
    values = [*scan.last_states, *(scan.stacks[number] for number in joint.wanted)]
    for value, atom in zip(values, results, strict=False):
        splice.instead(value, atom)
    given = dict(zip(joint.slices, scan.slices, strict=True))
    return {**given, **dict(zip(made, results[len(values) :], strict=True))}


def _write_backward(splice: Splice, joint: JointTurn, stacks: Mapping[Value, Atom]) -> None:
    """Append the backward scan, which computes again what was not saved and is read."""
    scan = joint.backward
    n_constants, n_states = len(scan.constants), len(scan.states)
    turn = _part(joint.program, joint.back, joint.backward_results, {*stacks, *joint.constants})
    read = {value for equation in turn.equations for value in equation.reads}
    read.update(atom for atom in turn.outputs if isinstance(atom, int))
    constants = [value for value in joint.constants if value in read]
    given = [value for value in stacks if value in read]
    turn = replace(turn, inputs=[*joint.back, *constants, *given])

    def backward(*values: Any) -> list[Any]:
        whole, rest = values[:n_constants], values[n_constants:]
        states, rest = rest[:n_states], rest[n_states:]
        again, slices = rest[: len(constants)], rest[len(constants) :]

        def one(states: Sequence[Any], slices: Sequence[Any]) -> Any:
            others, saved = slices[: len(joint.others)], slices[len(joint.others) :]
            results = run_program(turn, [*whole, *states, *others, *again, *saved])
            return results[:n_states], results[n_states:]

        after, collected = scan.over(one, states, list(slices))
        return [*after, *collected]

    whole_of = dict(zip(joint.constants, joint.forward.constants, strict=True))
    inputs = [
        *scan.constants,
        *scan.states,
        *(whole_of[value] for value in constants),
        *joint.others,
        *(stacks[value] for value in given),
    ]
    for value, atom in zip((*scan.last_states, *scan.stacks), splice.trace(backward, inputs), strict=True):
        splice.instead(value, atom)


def _part(
    program: FlatProgram, inputs: Sequence[Value], outputs: Sequence[Atom], given: Collection[Value]
) -> FlatProgram:
    """Return the equations that some results need beside what is given."""
    there = {*inputs, *given}
    wanted = {atom for atom in outputs if isinstance(atom, int)} - there
    kept: list[Equation] = []
    for equation in reversed(program.equations):
        if not wanted.isdisjoint(equation.outputs):
            kept.append(equation)
            wanted.update(value for value in equation.reads if value not in there)
    return replace(program, inputs=list(inputs), outputs=list(outputs), equations=kept[::-1])
