"""Choose what scans save."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from lowtide.core.index_spaces import BufferId
from lowtide.engine.graph import Graph, GraphBuilder
from lowtide.engine.plan import Plan, Run
from lowtide.engine.planning.find_plan import find_plan
from lowtide.engine.planning.settings import PlanSettings, default_techniques
from lowtide.frameworks.jax.flat.flatten import flatten
from lowtide.frameworks.jax.flat.program import Atom, FlatProgram, Value
from lowtide.frameworks.jax.internals import jax, struct_like
from lowtide.frameworks.jax.reading.kernels import kernels_of
from lowtide.frameworks.jax.reading.read import add_kernel
from lowtide.frameworks.jax.reading.sizes import bytes_of
from lowtide.frameworks.jax.scans.pairs import Scan, ScanPair

_BOUNDARY = "boundary"


@dataclass(frozen=True, slots=True, kw_only=True)
class JointIteration:
    """An iteration of a scan and of its backward scan, as one program."""

    program: FlatProgram
    forward: Scan
    backward: Scan
    constants: Sequence[Value]
    states: Sequence[Value]
    slices: Sequence[Value]
    back: Sequence[Value]
    """Inputs of the backward scan alone: constants, state, slices of `others`."""
    others: Sequence[Atom]
    wanted: Sequence[int]

    @property
    def forward_results(self) -> Sequence[Atom]:
        """The next state, then slices of wanted stacks."""
        return self.program.outputs[: len(self.states) + len(self.wanted)]

    @property
    def backward_results(self) -> Sequence[Atom]:
        return self.program.outputs[len(self.states) + len(self.wanted) :]


def joint_iteration(program: FlatProgram, pair: ScanPair) -> JointIteration:
    """Trace a joint iteration of a pair; raises NameError for a collective along a mesh axis."""
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

    def iteration(*values: Any) -> list[Any]:
        results = list(forward.body(*values[:count]))
        unsliced, others = values[count : count + first_slice], iter(values[count + first_slice :])
        slices = [
            next(others) if other else results[n_states + number_of[atom]]
            for atom, other in zip(backward.slices, is_other, strict=True)
        ]
        collected = [results[n_states + number] for number in wanted]
        return [*results[:n_states], *collected, *backward.body(*unsliced, *slices)]

    structs = map(struct_like, [*forward.types, *back_types])
    joint = flatten(jax.make_jaxpr(iteration)(*structs), f"{program.name}/iteration", platform=program.platform)
    constants, states, slices = forward.split(joint.inputs[:count])
    return JointIteration(
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


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedValues:
    values: frozenset[Value]
    bytes_per_iteration: int
    fits: bool


def choose_saved(program: FlatProgram, joint: JointIteration, limit: int) -> SavedValues:
    """Return the values to save within `limit` bytes per iteration, for the least recomputation by estimate.

    The boundary between forward and backward is an op with a scratch larger than all other memory, so that the budget
    bounds the values alive there. Slices of arrays that live on anyway are free.
    """
    alive = {*program.inputs, *program.constants, *(atom for atom in joint.others if isinstance(atom, int))}
    free = {
        value
        for value, stack in zip(joint.slices, joint.forward.slices, strict=True)
        if not isinstance(stack, int) or stack in alive
    }
    iteration = _IterationGraph(joint, free)
    settings = within(iteration.boundary_bytes + max(0, limit), in_place=False)
    values = iteration.saved(find_plan(iteration.graph, settings).plan)
    size = sum(bytes_of(joint.program.types[value]) for value in values if value not in free)
    return SavedValues(values=values, bytes_per_iteration=size, fits=size <= limit)


def within(budget_bytes: int, *, in_place: bool = True) -> PlanSettings:
    return PlanSettings(
        budget=budget_bytes,
        transient=True,
        techniques=default_techniques(budget_bytes),
        effort="fast",
        in_place=in_place,
        addresses=False,
    )


class _IterationGraph:
    def __init__(self, joint: JointIteration, free: Collection[Value]) -> None:
        self._joint = joint
        self._kernels = kernels_of(joint.program)
        program, kernels = joint.program, self._kernels
        builder = GraphBuilder(program.name)
        charged = [value for value in (*joint.states, *joint.slices) if value not in free]
        inside = {value for kernel in kernels.kernels for value in program.equations[kernel.root].outputs} | {*charged}
        stacked = {kernels.base[atom] for atom in joint.forward_results[len(joint.states) :] if isinstance(atom, int)}
        self._buffers: dict[Value, BufferId] = {}
        for value in (*program.inputs, *program.constants, *sorted(inside - {*program.inputs})):
            size = bytes_of(program.types[value]) if value in inside - stacked else 0
            self._buffers[value] = builder.add_buffer(f"value.{value}", size)
        self.boundary_bytes = 1 + sum(bytes_of(program.types[value]) for value in inside)
        self._add_ops(builder, charged)
        self.graph: Graph = builder.build()

    def _add_ops(self, builder: GraphBuilder, charged: Collection[Value]) -> None:
        joint, program, kernels = self._joint, self._joint.program, self._kernels
        given = [self._buffers[value] for value in (*program.inputs, *program.constants) if value not in charged]
        begin = [buffer for buffer in given if buffer not in {self._buffers[value] for value in joint.back}]
        builder.add_op("begin", "begin", writes=begin, pure=False)
        for value in charged:
            builder.add_op(f"given.{value}", "given", writes=[self._buffers[value]], pure=False)
        is_backward = self._is_backward()
        ends = [self._buffers[kernels.base[atom]] for atom in joint.forward_results if isinstance(atom, int)]
        for number in range(len(kernels.kernels)):
            if not is_backward[number]:
                add_kernel(builder, number, program, kernels, self._buffers, with_callees=False)
        token = builder.add_buffer("end", 0)
        builder.add_op("end", "end", reads=list(dict.fromkeys(ends)), writes=[token], pure=False)
        writes = [self._buffers[value] for value in joint.back]
        builder.add_op(
            _BOUNDARY, _BOUNDARY, reads=[token], writes=writes, scratch_bytes=self.boundary_bytes, pure=False
        )
        for number in range(len(kernels.kernels)):
            if is_backward[number]:
                add_kernel(builder, number, program, kernels, self._buffers, with_callees=False)

    def _is_backward(self) -> list[bool]:
        program = self._joint.program
        known = set(self._joint.back)
        found: list[bool] = []
        for kernel in self._kernels.kernels:
            found.append(any(self._kernels.base[value] in known for value in kernel.reads))
            if found[-1]:
                known.update(program.equations[kernel.root].outputs)
        return found

    def saved(self, plan: Plan) -> frozenset[Value]:
        value_of = {buffer: value for value, buffer in self._buffers.items()}
        graph = self.graph
        is_after, made, found = False, set[BufferId](), set[BufferId]()
        for step in plan.steps():
            if not isinstance(step, Run):
                continue
            if is_after:
                found.update(buffer for buffer in graph.reads[step.op].tolist() if buffer not in made)
                made.update(graph.writes[step.op].tolist())
            is_after = is_after or graph.op_names[step.op] == _BOUNDARY
        joint, kernels = self._joint, self._kernels
        given = {*joint.back, *joint.constants, *joint.program.constants}
        results = {kernels.base[atom] for atom in joint.backward_results if isinstance(atom, int)}
        kept = {value_of[buffer] for buffer in found} | {value for value in results if self._buffers[value] not in made}
        return frozenset(kept - given)
