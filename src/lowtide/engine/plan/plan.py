"""The plan: a program over a graph."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from lowtide.core.errors import UsageError
from lowtide.core.index_spaces import BufferId, OpId, Place, SpaceId
from lowtide.core.notebook import html_table
from lowtide.core.units import format_by_space
from lowtide.engine.graph import Graph, Rows
from lowtide.engine.plan.addresses import Address
from lowtide.engine.plan.claim import Claim

Status = Literal["optimal", "feasible", "infeasible", "stopped_by_work", "interrupted"]
HOME = -1


class StepKind(IntEnum):
    """The kind of a step, as stored in plans."""

    RUN = 0
    FREE = 1
    COPY_OUT = 2
    COPY_IN = 3


@dataclass(frozen=True, slots=True)
class Run:
    """Allocate the outputs of an op and run it."""

    op: OpId
    pairs: tuple[tuple[BufferId, BufferId], ...] = ()
    """The read buffer of a pair dies and hands its storage to the written buffer."""


@dataclass(frozen=True, slots=True)
class Free:
    """Free the copy of a buffer in a memory space, None for its home space."""

    buffer: BufferId
    space: SpaceId | None = None


@dataclass(frozen=True, slots=True)
class CopyOut:
    """Copy a buffer from its home space."""

    buffer: BufferId
    space: SpaceId


@dataclass(frozen=True, slots=True)
class CopyIn:
    """Copy a buffer back to its home space."""

    buffer: BufferId
    space: SpaceId


Step = Run | Free | CopyOut | CopyIn


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class Plan:
    """Steps over a graph, with addresses and claims. Byte figures are by memory space name, without persistent buffers.

    Callees without a plan run in program order.
    """

    graph_fingerprint: str
    kinds: NDArray[np.uint8]
    targets: NDArray[np.int32]
    """The op of a run, else a buffer."""
    spaces: NDArray[np.int16]
    pairs: Rows
    """In-place pairs of every step, flat: read, written, read, ..."""
    status: Status = "feasible"
    peak_bytes: Mapping[str, int] = field(default_factory=dict[str, int])
    lower_bound_bytes: Mapping[str, int] = field(default_factory=dict[str, int])
    arena_bytes: Mapping[str, int] = field(default_factory=dict[str, int])
    addresses: Sequence[Address] = ()
    """Usually a table `Addresses`."""
    claims: tuple[Claim, ...] = ()
    callees: Mapping[str, "Plan"] = field(default_factory=dict[str, "Plan"])

    def __repr__(self) -> str:
        peak = f", peak {format_by_space(self.peak_bytes)}" if self.peak_bytes else ""
        return f"Plan({self.n_steps} steps, {self.status}{peak})"

    def _repr_html_(self) -> str:
        counts = {kind: int((self.kinds == kind).sum()) for kind in StepKind}
        rows = [(kind.name.lower().replace("_", " "), str(count)) for kind, count in counts.items() if count]
        figures = {"peak": self.peak_bytes, "lower bound": self.lower_bound_bytes, "arena": self.arena_bytes}
        rows += [(name, format_by_space(figure)) for name, figure in figures.items() if figure]
        return html_table(f"plan: {self.status}", rows)

    @property
    def n_steps(self) -> int:
        """Number of steps."""
        return len(self.kinds)

    def order(self) -> NDArray[np.int32]:
        """Return the ops in run order."""
        return self.targets[self.kinds == StepKind.RUN]

    def taken_pairs(self) -> Iterator[tuple[Place, OpId, tuple[tuple[BufferId, BufferId], ...]]]:
        """Iterate over (position among the runs, op, in-place pairs) of runs with pairs."""
        runs = np.cumsum(self.kinds == StepKind.RUN) - 1
        for step in np.flatnonzero(np.diff(self.pairs.offsets)).tolist():
            yield int(runs[step]), int(self.targets[step]), _as_pairs(self.pairs[step].tolist())

    def steps(self) -> Iterator[Step]:
        """Iterate over the steps as objects."""
        for kind, target, space, flat in zip(
            self.kinds.tolist(), self.targets.tolist(), self.spaces.tolist(), self.pairs, strict=True
        ):
            if kind == StepKind.RUN:
                yield Run(target, _as_pairs(flat) if flat else ())
            elif kind == StepKind.FREE:
                yield Free(target, None if space == HOME else space)
            elif kind == StepKind.COPY_OUT:
                yield CopyOut(target, space)
            else:
                yield CopyIn(target, space)

    def without_claims(self) -> "Plan":
        """Return the plan without bounds and claims, for a program they do not hold for."""
        return replace(self, claims=(), lower_bound_bytes={}, status="feasible")

    def with_claims(
        self,
        *,
        status: Status,
        peak_bytes: Mapping[str, int],
        lower_bound_bytes: Mapping[str, int],
        arena_bytes: Mapping[str, int],
        addresses: Sequence[Address],
        claims: tuple[Claim, ...] = (),
    ) -> "Plan":
        """Return the plan with these claims."""
        return replace(
            self,
            status=status,
            peak_bytes=peak_bytes,
            lower_bound_bytes=lower_bound_bytes,
            arena_bytes=arena_bytes,
            addresses=addresses,
            claims=claims,
        )

    @classmethod
    def from_steps(cls, graph: Graph, steps: Iterable[Step]) -> "Plan":
        """Build a plan from steps, without checks."""
        kinds: list[int] = []
        targets: list[int] = []
        spaces: list[SpaceId] = []
        pairs: list[Sequence[BufferId]] = []
        for step in steps:
            flat: list[BufferId] = []
            match step:
                case Run(target, used):
                    kind, space = StepKind.RUN, HOME
                    flat = [buffer for pair in used for buffer in pair]
                case Free(target, where):
                    kind, space = StepKind.FREE, HOME if where is None else where
                case CopyOut(target, space):
                    kind = StepKind.COPY_OUT
                case CopyIn(target, space):
                    kind = StepKind.COPY_IN
            kinds.append(kind)
            targets.append(target)
            spaces.append(space)
            pairs.append(flat)
        return cls(
            graph_fingerprint=graph.fingerprint,
            kinds=np.asarray(kinds, np.uint8),
            targets=np.asarray(targets, np.int32),
            spaces=np.asarray(spaces, np.int16),
            pairs=Rows.from_lists(pairs),
        )

    @classmethod
    def from_order(
        cls,
        graph: Graph,
        order: NDArray[np.int32],
        pairs: NDArray[np.int32] | None = None,
        callees: Mapping[str, "Plan"] | None = None,
    ) -> "Plan":
        """Build the plan that runs `order` and frees buffers right after their last use. O(n + e).

        `pairs` are (op, read buffer, written buffer) in run order.
        """
        used = np.zeros((0, 3), np.int32) if pairs is None else pairs.reshape(-1, 3)
        last = _last_use(graph, order)
        freed = np.flatnonzero(graph.freeable)
        freed = freed[(graph.structure.producers[freed] >= 0) | graph.exists_at_start[freed]]
        freed = freed[~np.isin(freed, used[:, 1])]
        freed = freed[np.lexsort((freed, last[freed]))].astype(np.int32)

        n_runs, n_frees = len(order), len(freed)
        run_at = np.arange(n_runs) + np.searchsorted(last[freed], np.arange(n_runs), side="left")
        free_at = np.arange(n_frees) + last[freed] + 1
        kinds = np.empty(n_runs + n_frees, np.uint8)
        targets = np.empty(n_runs + n_frees, np.int32)
        kinds[run_at], targets[run_at] = StepKind.RUN, order
        kinds[free_at], targets[free_at] = StepKind.FREE, freed

        lengths = np.zeros(n_runs + n_frees + 1, np.int64)
        step_of = np.empty(graph.n_ops, np.int64)
        step_of[order] = run_at
        np.add.at(lengths, step_of[used[:, 0]] + 1, 2)
        return cls(
            graph_fingerprint=graph.fingerprint,
            kinds=kinds,
            targets=targets,
            spaces=np.full(n_runs + n_frees, HOME, np.int16),
            pairs=Rows(np.cumsum(lengths), np.ascontiguousarray(used[:, 1:]).ravel()),
            callees=dict(callees or {}),
        )

    @classmethod
    def baseline(cls, graph: Graph) -> "Plan":
        """Return the plan in program order."""
        return cls.from_order(graph, np.arange(graph.n_ops, dtype=np.int32))


def _as_pairs(flat: Sequence[BufferId]) -> tuple[tuple[BufferId, BufferId], ...]:
    return tuple(zip(flat[::2], flat[1::2], strict=True))


def _last_use(graph: Graph, order: NDArray[np.int32]) -> NDArray[np.int64]:
    position = np.empty(graph.n_ops, np.int64)
    position[order] = np.arange(len(order))
    last = np.full(graph.n_buffers, -1, np.int64)
    produced = graph.structure.producers >= 0
    last[produced] = position[graph.structure.producers[produced]]
    users = graph.structure.users
    np.maximum.at(last, users.owners(), position[users.values])
    return last


def checked_plan(given: object) -> Plan:
    if not isinstance(given, Plan):
        instead = "its .plan" if isinstance(getattr(given, "plan", None), Plan) else "a plan, or result.plan"
        raise UsageError(f"{type(given).__name__} is not a plan; give {instead}")
    return given
