"""Make scans save less."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from lowtide.frameworks.jax.flat.flatten import needed_equations
from lowtide.frameworks.jax.flat.program import Atom, FlatProgram, Splice, Value, run_program
from lowtide.frameworks.jax.scans.choice import JointIteration, choose_saved, joint_iteration
from lowtide.frameworks.jax.scans.pairs import ScanPair, disjoint_pairs, rewrite_pairs


@dataclass(frozen=True, slots=True, kw_only=True)
class SavingProgram:
    program: FlatProgram
    saved_bytes: int
    is_least: bool


def saving_program(program: FlatProgram, limit: int) -> SavingProgram | None:
    """Return a program with scans that save `limit` bytes for backward, or the least that planning finds.

    None if there are no pairs.
    """
    pairs = disjoint_pairs(program)
    total = sum(pair.saved_bytes for pair in pairs)
    chosen: dict[ScanPair, tuple[JointIteration, Collection[Value]]] = {}
    saved, is_least = 0, True
    for pair in pairs:
        try:
            joint = joint_iteration(program, pair)
        except NameError:  # JAX traces a collective only inside its mesh
            continue
        found = choose_saved(program, joint, limit * pair.saved_bytes // total // pair.length)
        chosen[pair] = joint, found.values
        saved += pair.length * found.bytes_per_iteration
        is_least &= not found.fits
    if not chosen:
        return None
    stacks: dict[ScanPair, Mapping[Value, Atom]] = {}

    def forward(splice: Splice, pair: ScanPair) -> None:
        stacks[pair] = _write_forward(splice, *chosen[pair])

    def backward(splice: Splice, pair: ScanPair) -> None:
        _write_backward(splice, chosen[pair][0], stacks[pair])

    rewritten = rewrite_pairs(program, chosen, forward, backward)
    return SavingProgram(program=rewritten, saved_bytes=saved, is_least=is_least)


def _write_forward(splice: Splice, joint: JointIteration, saved: Collection[Value]) -> Mapping[Value, Atom]:
    scan, inputs = joint.forward, [*joint.constants, *joint.states, *joint.slices]
    made = [value for value in sorted(saved) if value not in joint.slices]
    body = _part(joint.program, inputs, [*joint.forward_results, *made], ())

    def forward(*values: Any) -> list[Any]:
        constants, states, slices = scan.split(values)

        def iteration(states: Sequence[Any], slices: Sequence[Any]) -> Any:
            results = run_program(body, [*constants, *states, *slices])
            return results[: len(states)], results[len(states) :]

        after, stacks = scan.scan(iteration, states, list(slices))
        return [*after, *stacks]

    values = [*scan.last_states, *(scan.stacks[number] for number in joint.wanted)]
    stacks = splice.replace(values, forward, scan.inputs)
    return {**dict(zip(joint.slices, scan.slices, strict=True)), **dict(zip(made, stacks, strict=True))}


def _write_backward(splice: Splice, joint: JointIteration, stacks: Mapping[Value, Atom]) -> None:
    scan = joint.backward
    n_constants, n_states = len(scan.constants), len(scan.states)
    body = _part(joint.program, joint.back, joint.backward_results, {*stacks, *joint.constants})
    read = {value for equation in body.equations for value in equation.reads}
    read.update(atom for atom in body.outputs if isinstance(atom, int))
    constants = [value for value in joint.constants if value in read]
    given = [value for value in stacks if value in read]
    body = replace(body, inputs=[*joint.back, *constants, *given])

    def backward(*values: Any) -> list[Any]:
        own, rest = values[:n_constants], values[n_constants:]
        states, rest = rest[:n_states], rest[n_states:]
        of_forward, slices = rest[: len(constants)], rest[len(constants) :]

        def iteration(states: Sequence[Any], slices: Sequence[Any]) -> Any:
            others, saved = slices[: len(joint.others)], slices[len(joint.others) :]
            results = run_program(body, [*own, *states, *others, *of_forward, *saved])
            return results[:n_states], results[n_states:]

        after, collected = scan.scan(iteration, states, list(slices))
        return [*after, *collected]

    constant_of = dict(zip(joint.constants, joint.forward.constants, strict=True))
    inputs = [
        *scan.constants,
        *scan.states,
        *(constant_of[value] for value in constants),
        *joint.others,
        *(stacks[value] for value in given),
    ]
    splice.replace([*scan.last_states, *scan.stacks], backward, inputs)


def _part(
    program: FlatProgram, inputs: Sequence[Value], outputs: Sequence[Atom], given: Collection[Value]
) -> FlatProgram:
    equations = needed_equations(program.equations, outputs, {*inputs, *given})
    return replace(program, inputs=list(inputs), outputs=list(outputs), equations=equations)
