"""Which values of a scan's turns are saved for the way back, and which are computed again there: a plan of one turn."""

from collections.abc import Collection
from dataclasses import dataclass

from lowtide.core.index_spaces import BufferId
from lowtide.engine.graph import Graph, GraphBuilder
from lowtide.engine.plan import Plan, Run
from lowtide.engine.planning.find_plan import find_plan
from lowtide.engine.planning.settings import PlanSettings
from lowtide.frameworks.jax.flat.program import FlatProgram, Value
from lowtide.frameworks.jax.reading.read import add_kernel
from lowtide.frameworks.jax.reading.sizes import bytes_of
from lowtide.frameworks.jax.reading.stored import Kernels, kernels_of
from lowtide.frameworks.jax.scans.turns import JointTurn

_TURN_BACK = "turn back"


@dataclass(frozen=True, slots=True, kw_only=True)
class Saved:
    """What passes from a turn to its turn back."""

    values: frozenset[Value]
    """Values of the joint turn; inputs of the forward scan among them."""
    bytes_a_turn: int
    fits: bool
    """Whether that is no more than was asked; else it is the least that planning found."""


def choose_saved(program: FlatProgram, joint: JointTurn, limit: int) -> Saved:
    """Return what to save of a turn within so many bytes, for the least that is computed again by estimate.

    The turn there and back is one graph, and what lives at the place between them is what is saved: an op there needs
    more than all other places together, beside what it leaves for that. Slices of what is there on the way back anyway,
    as the program's inputs are, cost nothing. The graph's plan is verified as any other.
    """
    there = {*program.inputs, *program.constants, *(atom for atom in joint.others if isinstance(atom, int))}
    free = {
        value
        for value, stack in zip(joint.slices, joint.forward.slices, strict=True)
        if not isinstance(stack, int) or stack in there
    }
    turn = _TurnGraph(joint, free)
    settings = PlanSettings(
        budget=turn.elsewhere + max(0, limit),
        transient=True,
        techniques=frozenset(("reorder", "recompute")),
        effort="fast",
        in_place=False,
        addresses=False,
    )
    result = find_plan(turn.graph, settings)
    values = turn.saved(result.plan)
    size = sum(bytes_of(joint.program.types[value]) for value in values if value not in free)
    return Saved(values=values, bytes_a_turn=size, fits=size <= limit)


class _TurnGraph:
    """A turn there and back as a graph, with an op where it turns back."""

    def __init__(self, joint: JointTurn, free: Collection[Value]) -> None:
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
        self.elsewhere = 1 + sum(bytes_of(program.types[value]) for value in inside)
        self._build(builder, charged, kernels)
        self.graph: Graph = builder.build()

    def _build(self, builder: GraphBuilder, charged: Collection[Value], kernels: Kernels) -> None:
        """Add what is given, the kernels of the turn, the place where it turns back, and the kernels after it."""
        joint, program = self._joint, self._joint.program
        given = [self._buffers[value] for value in (*program.inputs, *program.constants) if value not in charged]
        begin = [buffer for buffer in given if buffer not in {self._buffers[value] for value in joint.back}]
        builder.add_op("begin", "begin", writes=begin, pure=False)
        for value in charged:
            builder.add_op(f"given.{value}", "given", writes=[self._buffers[value]], pure=False)
        late = self._late()
        ends = [self._buffers[kernels.base[atom]] for atom in joint.forward_results if isinstance(atom, int)]
        for number, kernel in enumerate(kernels.kernels):
            if not late[number]:
                add_kernel(builder, number, kernel, program, kernels, self._buffers, with_callees=False)
        token = builder.add_buffer("end", 0)
        builder.add_op("end", "end", reads=list(dict.fromkeys(ends)), writes=[token], pure=False)
        writes = [self._buffers[value] for value in joint.back]
        builder.add_op(_TURN_BACK, "turn", reads=[token], writes=writes, scratch_bytes=self.elsewhere, pure=False)
        for number, kernel in enumerate(kernels.kernels):
            if late[number]:
                add_kernel(builder, number, kernel, program, kernels, self._buffers, with_callees=False)

    def _late(self) -> list[bool]:
        """Return, per kernel, whether it needs something that only the way back has."""
        program = self._joint.program
        known = set(self._joint.back)
        late: list[bool] = []
        for kernel in self._kernels.kernels:
            late.append(any(self._kernels.base[value] in known for value in kernel.reads))
            if late[-1]:
                known.update(program.equations[kernel.root].outputs)
        return late

    def saved(self, plan: Plan) -> frozenset[Value]:
        """Return what a plan reads after the turn back and made before it."""
        value_of = {buffer: value for value, buffer in self._buffers.items()}
        graph = self.graph
        has_turned, made, found = False, set[BufferId](), set[BufferId]()
        for step in plan.steps():
            if not isinstance(step, Run):
                continue
            if has_turned:
                found.update(buffer for buffer in graph.reads[step.op].tolist() if buffer not in made)
                made.update(graph.writes[step.op].tolist())
            has_turned = has_turned or graph.op_names[step.op] == _TURN_BACK
        joint, kernels = self._joint, self._kernels
        given = {*joint.back, *joint.constants, *joint.program.constants}
        results = {kernels.base[atom] for atom in joint.backward_results if isinstance(atom, int)}
        kept = {value_of[buffer] for buffer in found} | {value for value in results if self._buffers[value] not in made}
        return frozenset(kept - given)
