"""The plan: a small program over a graph, the only thing that is verified, applied, saved and measured."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from lowtide.core.errors import UsageError
from lowtide.core.index_spaces import BufferId, OpId, Place, SpaceId, StepIndex
from lowtide.core.notebook import html_table
from lowtide.core.units import ByteUnit, format_by_space
from lowtide.engine.graph import Graph, Rows
from lowtide.engine.plan.addresses import Address
from lowtide.engine.plan.claim import Claim
from lowtide.engine.plan.steps import CopyIn, CopyOut, Free, Run, Step, StepKind

Status = Literal["optimal", "feasible", "infeasible", "stopped_by_work", "interrupted"]
HOME = -1
"""Stored in place of a space where a step means the buffer's home space."""


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class Plan:
    """Steps over a graph, with addresses and the claims made for them.

    Steps are stored flat (kind, target, space, pairs); `steps()` gives them as objects. Byte figures are per memory
    space name and leave persistent buffers out. `callees` holds a plan for every subgraph that is not run as it stands.
    """

    graph_fingerprint: str
    kinds: NDArray[np.uint8]
    targets: NDArray[np.int32]
    """The op of a run, the buffer of any other step."""
    spaces: NDArray[np.int16]
    pairs: Rows
    """In-place pairs of every step, flat: read, written, read, written, ..."""
    status: Status = "feasible"
    peak_bytes: Mapping[str, int] = field(default_factory=dict[str, int])
    lower_bound_bytes: Mapping[str, int] = field(default_factory=dict[str, int])
    arena_bytes: Mapping[str, int] = field(default_factory=dict[str, int])
    addresses: Sequence[Address] = ()
    """Where every residency lies. A plan that was packed or read holds a table, `Addresses`."""
    claims: tuple[Claim, ...] = ()
    """What no plan of some class can do better, as whoever made the plan says."""
    callees: Mapping[str, "Plan"] = field(default_factory=dict[str, "Plan"])

    def __repr__(self) -> str:
        """Return the headline; `steps()` has the steps."""
        peak = f", peak {format_by_space(self.peak_bytes)}" if self.peak_bytes else ""
        return f"Plan({self.n_steps} steps, {self.status}{peak})"

    def _repr_html_(self) -> str:
        counts = {kind: int((self.kinds == kind).sum()) for kind in StepKind}
        rows = [(kind.name.lower().replace("_", " "), str(count)) for kind, count in counts.items() if count]
        figures = {"peak": self.peak_bytes, "lower bound": self.lower_bound_bytes, "arena": self.arena_bytes}
        unit = ByteUnit(*figures.values())
        rows += [(name, unit.by_space(figure)) for name, figure in figures.items() if figure]
        return html_table(f"plan: {self.status}", rows)

    @property
    def n_steps(self) -> int:
        """Number of steps."""
        return len(self.kinds)

    def order(self) -> NDArray[np.int32]:
        """Return the ops in the order they run, rematerializations included."""
        return self.targets[self.kinds == StepKind.RUN]

    def taken_pairs(self) -> Iterator[tuple[Place, OpId, tuple[tuple[BufferId, BufferId], ...]]]:
        """Iterate (position among the runs, op, in-place pairs) over the runs that take any."""
        runs = np.cumsum(self.kinds == StepKind.RUN) - 1
        for step in np.flatnonzero(np.diff(self.pairs.offsets)).tolist():
            yield int(runs[step]), int(self.targets[step]), self._pairs_of(step)

    def steps(self) -> Iterator[Step]:
        """Iterate the steps as objects."""
        for kind, target, space, flat in zip(
            self.kinds.tolist(), self.targets.tolist(), self.spaces.tolist(), self.pairs, strict=True
        ):
            if kind == StepKind.RUN:
                yield Run(target, tuple(zip(flat[::2], flat[1::2], strict=True)) if flat else ())
            elif kind == StepKind.FREE:
                yield Free(target, None if space == HOME else space)
            elif kind == StepKind.COPY_OUT:
                yield CopyOut(target, space)
            else:
                yield CopyIn(target, space)

    def _pairs_of(self, step: StepIndex) -> tuple[tuple[BufferId, BufferId], ...]:
        flat = self.pairs[step].tolist()
        return tuple(zip(flat[::2], flat[1::2], strict=True))

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
        """Return the same steps with figures, addresses and claims attached."""
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
        """Build a plan from step objects; it is not checked, `verify` does that."""
        kinds: list[int] = []
        targets: list[int] = []
        spaces: list[SpaceId] = []
        pairs: list[Sequence[BufferId]] = []
        for step in steps:
            flat: list[BufferId] = []
            match step:
                case Run(target, taken):
                    kind, space = StepKind.RUN, HOME
                    flat = [buffer for pair in taken for buffer in pair]
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
        """Build the plan that runs `order` and frees every freeable buffer right after its last use. O(n + e).

        `pairs` holds in-place pairs taken as rows (op, read buffer, written buffer), in run order.
        """
        taken = np.zeros((0, 3), np.int32) if pairs is None else pairs.reshape(-1, 3)
        last = _last_use(graph, order)
        freed = np.flatnonzero(graph.freeable)
        freed = freed[(graph.structure.producers[freed] >= 0) | graph.exists_at_start[freed]]
        freed = freed[~np.isin(freed, taken[:, 1])]
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
        np.add.at(lengths, step_of[taken[:, 0]] + 1, 2)
        return cls(
            graph_fingerprint=graph.fingerprint,
            kinds=kinds,
            targets=targets,
            spaces=np.full(n_runs + n_frees, HOME, np.int16),
            pairs=Rows(np.cumsum(lengths), np.ascontiguousarray(taken[:, 1:]).ravel()),
            callees=dict(callees or {}),
        )

    @classmethod
    def baseline(cls, graph: Graph) -> "Plan":
        """Build the plan of the untouched program: given order, frees at last use, no optional in-place pair taken."""
        return cls.from_order(graph, np.arange(graph.n_ops, dtype=np.int32))


def _last_use(graph: Graph, order: NDArray[np.int32]) -> NDArray[np.int64]:
    """Per buffer, the position in `order` of its last user or producer; -1 where nothing touches it."""
    position = np.empty(graph.n_ops, np.int64)
    position[order] = np.arange(len(order))
    last = np.full(graph.n_buffers, -1, np.int64)
    produced = graph.structure.producers >= 0
    last[produced] = position[graph.structure.producers[produced]]
    users = graph.structure.users
    np.maximum.at(last, users.owners(), position[users.values])
    return last


def checked_plan(given: object) -> Plan:
    """Return what a user gave as a plan; raises UsageError for what is none."""
    if not isinstance(given, Plan):
        instead = "its .plan" if isinstance(getattr(given, "plan", None), Plan) else "a plan, or result.plan"
        raise UsageError(f"{type(given).__name__} is no plan; give {instead}")
    return given
