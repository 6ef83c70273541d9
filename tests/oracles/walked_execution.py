"""The oracle of the verifier of execution: a walk over the steps of a plan that checks every rule at its step.

`lowtide.engine.plan.verify_execution` checks the same rules on arrays, for all steps at once.
"""

from typing import NoReturn

import numpy as np
from numpy.typing import NDArray

from lowtide.core.errors import VerificationError
from lowtide.engine.graph import Graph, Lifetime
from lowtide.engine.graph.execution import ABSENT, Versions, may_run_twice, program_versions, why_not_twice
from lowtide.engine.plan import HOME, Plan, StepKind
from lowtide.engine.plan.addresses import BEFORE_THE_FIRST_STEP
from lowtide.engine.plan.verify_execution import Peak


def walked_execution(graph: Graph, plan: Plan, transient: NDArray[np.int64]) -> tuple[list[Peak], NDArray[np.int64]]:
    """Play a plan whose ids are in range; return the peak per memory space and its residencies. O(steps + e).

    `transient` holds the bytes every op needs while it runs, shape (ops, spaces). Raises VerificationError for the
    first step that breaks a rule. The rule for contents covers data, anti- and output dependences at once: an op runs
    only while every buffer it touches is resident in its home space with exactly the version that the op saw in program
    order, and leaves the versions it left there.
    """
    versions = program_versions(graph)
    execution = _Execution(graph, versions, transient)
    for step, (kind, target, space, pairs) in enumerate(
        zip(plan.kinds.tolist(), plan.targets.tolist(), plan.spaces.tolist(), plan.pairs, strict=True)
    ):
        if kind == StepKind.RUN:
            execution.run(step, target, pairs)
        elif kind == StepKind.FREE:
            execution.free(step, target, space)
        elif kind == StepKind.COPY_OUT:
            execution.copy_out(step, target, space)
        else:
            execution.copy_in(step, target, space)
    execution.finish()
    return execution.peaks, _residencies(graph, plan, versions)


class _Execution:
    """What is resident where, with which contents, after the steps so far."""

    def __init__(self, graph: Graph, versions: Versions, transient: NDArray[np.int64]) -> None:
        self._graph = graph
        self._versions = versions
        self._sizes = graph.sizes.tolist()
        self._homes = graph.buffer_spaces.tolist()
        self._lifetimes = graph.lifetimes.tolist()
        self._may_run_twice = may_run_twice(graph).tolist()
        self._ordered = graph.ordered.tolist()
        self._after, self._after_first = graph.after.values.tolist(), graph.after.offsets.tolist()
        self._transient = {int(op): transient[op].tolist() for op in np.flatnonzero(transient.any(axis=1))}
        self._no_transient = [0] * len(graph.spaces)
        self._has_run = bytearray(graph.n_ops)
        self._last_ordered = -1
        self._at_home = [0 if lifetime <= Lifetime.DONATED else ABSENT for lifetime in self._lifetimes]
        self._copies: dict[tuple[int, int], int] = {}
        self._live = [0] * len(graph.spaces)
        for buffer, lifetime in enumerate(self._lifetimes):
            if lifetime in (Lifetime.INPUT, Lifetime.DONATED):
                self._live[self._homes[buffer]] += self._sizes[buffer]
        self.peaks = [Peak(now, -1) for now in self._live]

    def run(self, step: int, op: int, pairs: list[int]) -> None:
        """Run an op: check what it needs, allocate, read the peak, drop what it replaced."""
        if self._has_run[op]:
            if not self._may_run_twice[op]:
                why = why_not_twice(self._graph, op)
                self._fail(step, f"op {self._op(op)} runs a second time, but {why}; run it once")
        else:
            self._check_first_run(step, op)
            self._has_run[op] = 1
        versions, at_home, live = self._versions, self._at_home, self._live
        first_write, end = versions.writes_from[op], versions.first[op + 1]
        for access in range(versions.first[op], end):
            seen = versions.seen[access]
            if at_home[versions.buffers[access]] != seen and seen != ABSENT:
                self._fail_contents(step, op, versions.buffers[access], seen)
        if pairs:
            self._check_pairs(step, op, pairs)
        for read in pairs[::2]:
            live[self._homes[read]] -= self._sizes[read]
        replaced: list[int] = []
        for access in range(first_write, end):
            buffer = versions.buffers[access]
            if versions.seen[access] == ABSENT:
                live[self._homes[buffer]] += self._sizes[buffer]
                if at_home[buffer] != ABSENT:  # a rerun writes beside the copy that is still there
                    replaced.append(buffer)
            at_home[buffer] = versions.seen[access] + 1
        for space, extra in enumerate(self._transient.get(op, self._no_transient)):
            if live[space] + extra > self.peaks[space].bytes:
                self.peaks[space] = Peak(live[space] + extra, step)
        for buffer in replaced:
            live[self._homes[buffer]] -= self._sizes[buffer]
        for read in pairs[::2]:
            at_home[read] = ABSENT

    def free(self, step: int, buffer: int, space: int) -> None:
        """Free one copy of a buffer."""
        home = self._homes[buffer]
        if space in (HOME, home):
            if self._at_home[buffer] == ABSENT:
                self._fail(step, f"buffer {self._buffer(buffer)} is freed in {self._space(home)}, but is not resident")
            self._at_home[buffer] = ABSENT
            self._grow(step, buffer, home, -self._sizes[buffer])
        elif self._copies.pop((buffer, space), None) is None:
            self._fail(step, f"buffer {self._buffer(buffer)} is freed in {self._space(space)}, but has no copy there")
        else:
            self._grow(step, buffer, space, -self._sizes[buffer])

    def copy_out(self, step: int, buffer: int, space: int) -> None:
        """Copy a buffer from its home space to another."""
        if space == self._homes[buffer]:
            self._fail(step, f"buffer {self._buffer(buffer)} is copied out to its home space; name another space")
        if self._at_home[buffer] == ABSENT:
            self._fail(
                step, f"buffer {self._buffer(buffer)} is copied out, but is not resident; copy it before it is freed"
            )
        if (buffer, space) in self._copies:
            self._fail(
                step, f"buffer {self._buffer(buffer)} has a copy in {self._space(space)} already; free that copy first"
            )
        self._copies[buffer, space] = self._at_home[buffer]
        self._grow(step, buffer, space, self._sizes[buffer])

    def copy_in(self, step: int, buffer: int, space: int) -> None:
        """Copy a buffer back to its home space."""
        version = self._copies.get((buffer, space))
        if version is None:
            self._fail(step, f"buffer {self._buffer(buffer)} is copied in, but has no copy in {self._space(space)}")
        if self._at_home[buffer] != ABSENT:
            self._fail(step, f"buffer {self._buffer(buffer)} is copied in, but is still resident; free it first")
        self._at_home[buffer] = version
        self._grow(step, buffer, self._homes[buffer], self._sizes[buffer])

    def finish(self) -> None:
        """Check what must hold after the last step."""
        for op, ran in enumerate(self._has_run):
            if not ran:
                raise VerificationError(f"after the last step: op {self._op(op)} never ran; run every op at least once")
        for buffer, lifetime in enumerate(self._lifetimes):
            if lifetime in (Lifetime.DONATED, Lifetime.INTERMEDIATE):
                continue
            wanted, found = self._versions.final[buffer], self._at_home[buffer]
            if found != wanted:
                what = f"{Lifetime(lifetime).name.lower()} buffer {self._buffer(buffer)}"
                raise VerificationError(f"after the last step: {what} {self._difference(buffer, wanted, found)}")

    def _check_first_run(self, step: int, op: int) -> None:
        for earlier in self._after[self._after_first[op] : self._after_first[op + 1]]:
            if not self._has_run[earlier]:
                self._fail(
                    step,
                    f"op {self._op(op)} runs before its control predecessor {self._op(earlier)}; run that op first",
                )
        if self._ordered[op]:
            if op < self._last_ordered:
                later = self._op(self._last_ordered)
                self._fail(step, f"ordered op {self._op(op)} runs after ordered op {later}; keep their program order")
            self._last_ordered = op

    def _check_pairs(self, step: int, op: int, pairs: list[int]) -> None:
        flat = self._graph.in_place[op].tolist()
        offered = list(zip(flat[::2], flat[1::2], strict=True))
        allocated = self._versions.allocated_by(op)
        if len(set(pairs)) < len(pairs):
            self._fail(step, f"op {self._op(op)} uses in-place pairs that share a buffer; use each buffer in one pair")
        for read, written in zip(pairs[::2], pairs[1::2], strict=True):
            name = f"in-place pair {self._buffer(read)} -> {self._buffer(written)}"
            if (read, written) not in offered:
                self._fail(step, f"op {self._op(op)} does not offer {name}; use only pairs of the graph")
            if self._lifetimes[read] not in (Lifetime.DONATED, Lifetime.INTERMEDIATE):
                self._fail(
                    step,
                    f"{name}: the read buffer must stay resident; only donated and intermediate buffers can be freed",
                )
            if (self._sizes[read], self._homes[read]) != (self._sizes[written], self._homes[written]):
                self._fail(step, f"{name}: the buffers differ in size or memory space; both must be equal")
            if written not in allocated or self._at_home[written] != ABSENT:
                self._fail(
                    step, f"{name}: the written buffer has storage already; only an allocation can take over storage"
                )

    def _grow(self, step: int, buffer: int, space: int, size: int) -> None:
        if self._lifetimes[buffer] == Lifetime.PERSISTENT and space == self._homes[buffer]:
            return  # counted apart, whether it is there or not
        self._live[space] += size
        if self._live[space] > self.peaks[space].bytes:
            self.peaks[space] = Peak(self._live[space], step)

    def _fail_contents(self, step: int, op: int, buffer: int, wanted: int) -> NoReturn:
        difference = self._difference(buffer, wanted, self._at_home[buffer])
        self._fail(step, f"op {self._op(op)} touches buffer {self._buffer(buffer)}, which {difference}")

    def _difference(self, buffer: int, wanted: int, found: int) -> str:
        if found == ABSENT:
            return f"is not resident in {self._space(self._homes[buffer])}; write it, copy it in or free it later"
        wanted_as = _describe_version(self._graph, buffer, wanted)
        found_as = _describe_version(self._graph, buffer, found)
        return f"is needed {wanted_as}, but is resident {found_as}; keep the program's order of reads and writes"

    def _fail(self, step: int, what: str) -> NoReturn:
        raise VerificationError(f"step {step}: {what}")

    def _op(self, op: int) -> str:
        return repr(self._graph.op_names[op])

    def _buffer(self, buffer: int) -> str:
        return repr(self._graph.buffer_names[buffer])

    def _space(self, space: int) -> str:
        return f"memory space {self._graph.spaces[space].name!r}"


def _residencies(graph: Graph, plan: Plan, versions: Versions) -> NDArray[np.int64]:
    """Return every residency with a size that the peak counts; the plan has been found executable. O(steps + e).

    A table of shape (n, 5): the columns are those of `Addresses`, with the row that a residency takes its storage over
    from, or -1, in place of its offset. This is the verifier's own walk: what plans are made with is not asked.
    """
    sizes, homes, lifetimes = graph.sizes.tolist(), graph.buffer_spaces.tolist(), graph.lifetimes.tolist()
    buffers, firsts, lasts, spaces, continues = list[int](), list[int](), list[int](), list[int](), list[int]()
    present = [[-1] * graph.n_buffers for _ in graph.spaces]  # per space and buffer: the row of what is there

    def start(buffer: int, space: int, step: int, taken_over: int = -1) -> None:
        if sizes[buffer] == 0 or (lifetimes[buffer] == Lifetime.PERSISTENT and space == homes[buffer]):
            return
        present[space][buffer] = len(buffers)
        buffers.append(buffer)
        firsts.append(step)
        lasts.append(plan.n_steps)
        spaces.append(space)
        continues.append(taken_over)

    def end(buffer: int, space: int, step: int) -> int:
        row = present[space][buffer]
        if row >= 0:
            lasts[row] = step
            present[space][buffer] = -1
        return row

    for buffer, lifetime in enumerate(lifetimes):
        if lifetime in (Lifetime.INPUT, Lifetime.DONATED):
            start(buffer, homes[buffer], 0)
    for step, (kind, target, space, pairs) in enumerate(
        zip(plan.kinds.tolist(), plan.targets.tolist(), plan.spaces.tolist(), plan.pairs, strict=True)
    ):
        if kind == StepKind.RUN:
            taken = zip(pairs[::2], pairs[1::2], strict=True)
            handed = {written: end(read, homes[read], step) for read, written in taken} if pairs else {}
            for buffer in versions.allocated_by(target):
                end(buffer, homes[buffer], step + 1)
                start(buffer, homes[buffer], step, handed.get(buffer, -1))
        elif kind == StepKind.FREE:
            end(target, homes[target] if space == HOME else space, step)
        else:
            start(target, space if kind == StepKind.COPY_OUT else homes[target], step)
    table = np.array([buffers, firsts, lasts, spaces, continues], np.int64).T
    table[table[:, 1] == table[:, 2], 1] = BEFORE_THE_FIRST_STEP
    return table


def _describe_version(graph: Graph, buffer: int, version: int) -> str:
    """Say which write gave a buffer a version, for messages: "as op 'x' wrote it". O(n + e)."""
    versions = program_versions(graph)
    for op in range(graph.n_ops):
        for access in range(versions.writes_from[op], versions.first[op + 1]):
            if versions.buffers[access] == buffer and versions.seen[access] + 1 == version:
                return f"as op {graph.op_names[op]!r} wrote it"
    return "as it was at the start"
