"""A plan of kernels in terms of FX nodes."""

from bisect import bisect_right
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from lowtide.core.errors import UnsupportedError
from lowtide.core.index_spaces import BufferId, Place
from lowtide.engine.plan import CopyIn, CopyOut, Free, Plan, Run
from lowtide.frameworks.torch.compile.kernels.kernel_program import KernelProgram
from lowtide.frameworks.torch.internals.kernels import Form

_EXTERN = "Extern"
"""Kernels of PyTorch; others are loops that Inductor generates."""


@dataclass(frozen=True, slots=True)
class HostCopy:
    """A copy of a forward value to the host and back."""

    value: str
    """FX name of the value that spans the buffer."""
    buffer: BufferId
    leaves: Place
    """The first run after the copy out begins."""
    is_gone: Place
    """The first run after the device's copy is freed."""
    returns: Sequence[Place]
    """The first runs after the copies back begin."""


@dataclass(frozen=True, slots=True, eq=False)
class KernelChoice:
    """A plan of kernels in FX names. Places count the plan's runs."""

    buffer_of: Mapping[str, BufferId]
    """Buffers of forward values that kernels store."""
    recomputed_at: Mapping[BufferId, Sequence[Place]]
    """Places of the recomputed runs and copies back that make a buffer."""
    place_of: Mapping[str, Place]
    turn: Place
    copies: Sequence[HostCopy]
    saved: Collection[BufferId]
    """Buffers kept for the backward pass."""
    stored_by_loops: Collection[str]
    """Values that Inductor's own kernels store."""
    forms: Mapping[str, Form]

    def is_recomputed(self, value: str) -> bool:
        """Return whether the plan recomputes a stored value, or copies it back."""
        return self.buffer_of.get(value) in self.recomputed_at

    def maker(self, value: str, reader: Place) -> Place | None:
        """Return the place of the recomputed run or copy that a reader of a value uses; None for the first run.

        A run that writes the value reads its own result.
        """
        buffer = self.buffer_of[value]
        places = self.recomputed_at.get(buffer, ())
        n_before = bisect_right(places, reader)
        if n_before:
            return places[n_before - 1]
        return None if buffer in self.saved or not places else places[0]


def choice_of(program: KernelProgram, plan: Plan) -> KernelChoice:
    """Return a plan in FX names.

    Raises UnsupportedError for host copies of buffers that no value spans, or that forward kernels read after their
    return.
    """
    graph, turn = program.graph, program.turn
    made_again: dict[BufferId, list[Place]] = {}
    place_of: dict[str, Place] = {}
    called: dict[str, Place] = {}
    """Places of PyTorch's own kernels; kernels that convert operands come before."""
    saved: set[BufferId] = set()
    copies = _PlannedCopies(program)
    place, turned_at = 0, -1
    for step in plan.steps():
        if not isinstance(step, Run):
            copies.add(step, place)
            if isinstance(step, CopyIn):
                made_again.setdefault(step.buffer, []).append(place)
            continue
        op = step.op
        if turned_at < 0 and not made_again.keys().isdisjoint(graph.reads[op].tolist()):
            raise UnsupportedError("the plan copies a buffer back from the host within the forward pass")
        if turned_at >= 0:
            saved.update(buffer for buffer in graph.reads[op].tolist() if buffer not in made_again)
        if op == turn:
            turned_at = place
        elif op < turn and turned_at >= 0:
            for buffer in graph.writes[op].tolist():
                made_again.setdefault(buffer, []).append(place)
        else:
            one, kernel = program.kernel_of(op)
            for name in one.origins[kernel]:
                place_of.setdefault(name, place)
            called[one.calls[kernel]] = place
        place += 1
    forward, buffers = program.forward, program.forward_buffers
    stored = {value: storage.name for value, storage in forward.storages.items()}
    stored |= {value: name for name, value in forward.values.items()}
    buffer_of = {
        value: buffers[name] for value, name in stored.items() if name in buffers and value in program.forward_nodes
    }
    kernel_kinds = forward.graph.op_kinds
    by_pytorch: set[BufferId] = set()
    for op, kernel in enumerate(program.forward_kernels):
        if kernel_kinds[kernel].startswith(_EXTERN):
            by_pytorch.update(graph.writes[op].tolist())
    stored_by_loops = {value for value, buffer in buffer_of.items() if buffer not in by_pytorch}
    return KernelChoice(
        buffer_of,
        made_again,
        place_of | called,
        turned_at,
        copies.found(),
        saved,
        stored_by_loops,
        forward.forms,
    )


class _PlannedCopies:
    def __init__(self, program: KernelProgram) -> None:
        values = program.forward.values
        self._spanning = {buffer: values[name] for name, buffer in program.forward_buffers.items() if name in values}
        self._leaves: dict[BufferId, Place] = {}
        self._is_gone: dict[BufferId, Place] = {}
        self._returns: dict[BufferId, list[Place]] = {}

    def add(self, step: Free | CopyOut | CopyIn, place: Place) -> None:
        buffer = step.buffer
        if isinstance(step, CopyOut):
            if buffer not in self._spanning:
                raise UnsupportedError("the plan copies a buffer to the host that no value spans")
            self._leaves.setdefault(buffer, place)
        elif isinstance(step, CopyIn):
            self._returns.setdefault(buffer, []).append(place)
        elif buffer in self._leaves and step.space is None:
            self._is_gone.setdefault(buffer, place)

    def found(self) -> list[HostCopy]:
        return [
            HostCopy(self._spanning[buffer], buffer, leaves, self._is_gone[buffer], self._returns.get(buffer, ()))
            for buffer, leaves in self._leaves.items()
        ]
