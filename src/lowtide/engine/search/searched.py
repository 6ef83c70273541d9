"""A completed search, and its proof."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from typing import cast, get_args

import msgspec
import numpy as np
from numpy.typing import NDArray

from lowtide import _native
from lowtide.core.effort import SearchEffort
from lowtide.core.index_spaces import OpId, SpaceId
from lowtide.engine.analysis.problem import Order, Problem
from lowtide.engine.graph import Graph
from lowtide.engine.search.proof import CutFlow, Line, Moves, Proof, RefutedBudget, SpaceProof, called_graphs, prove
from lowtide.engine.search.solve import Solution

_MIN_LOG_WORK = 200_000_000
_LOG_OPS = 1_000
_LOG_WORK_FACTOR = 8


@dataclass(frozen=True, kw_only=True, eq=False)
class Searched:
    """A problem with its solution."""

    problem: Problem
    solution: Solution
    effort: SearchEffort

    @cached_property
    def proof(self) -> Proof:
        """The proof without logs."""
        solution = self.solution
        return prove(self.problem, solution.cuts, solution.refuted, tree_bytes=solution.tree_bytes)

    @cached_property
    def logged_proof(self) -> Proof:
        """The proof with flows of its cuts and, if found, a log of the highest refuted budget per space.

        A log also refutes all lower budgets. Takes up to eight times the work of the search; skipped after an
        interrupted search. Ctrl-C raises KeyboardInterrupt. Deterministic.
        """
        if self.solution.interrupted:
            return self.proof
        spaces = tuple(self._with_log(position, space) for position, space in enumerate(self.proof.spaces))
        return with_flows(msgspec.structs.replace(self.proof, spaces=spaces), self.problem.graph)

    def _with_log(self, position: int, space: SpaceProof) -> SpaceProof:
        if not space.refuted:
            return space
        least = _MIN_LOG_WORK // max(1, self.problem.graph.n_ops // _LOG_OPS)
        most = min(self.effort.fit_work // 2, max(least, _LOG_WORK_FACTOR * self.solution.work))
        below = space.bound_bytes - 1
        log = find_refutation(self.problem, self.solution.order, position, below, most)
        *lower, highest = space.refuted
        logged: RefutedBudget = msgspec.structs.replace(highest, log=log)
        return msgspec.structs.replace(space, refuted=(*lower, logged))


_LINES: Sequence[type[Line]] = get_args(Line)
"""Numbered as in the native kernel."""


def find_refutation(
    problem: Problem, order: Order, space: SpaceId, budget_bytes: int, most_work: int
) -> tuple[Line, ...]:
    """Return a log that no order meets a budget of one memory space, or an empty one if none is found.

    Ops with the most live bytes in `order` come first. Stops after about `most_work` arcs of flow graphs per method.
    Every log is correct, but a missing log does not mean that some order fits. Deterministic.
    """
    profile: NDArray[np.int64] = _native.profile(problem.native, order, problem.in_place)
    bytes_here = profile.reshape(len(order), len(problem.graph.spaces))[:, space]
    worst_first = order[np.argsort(-bytes_here, kind="stable")]
    flat = _native.refute(problem.native, space, problem.in_place, budget_bytes, worst_first, most_work)
    return tuple(_lines(iter(flat.reshape(-1, 4).tolist())))


def _lines(rows: Iterator[list[int]]) -> Iterator[Line]:
    for kind, *figures in rows:
        line = cast("Callable[..., Line]", _LINES[kind])
        fields = _LINES[kind].__struct_fields__
        if fields == ("ops",):
            yield line(tuple(op for _, op, *_ in islice(rows, figures[0])))
        else:
            yield line(*figures[: len(fields)])


def with_flows(proof: Proof, graph: Graph) -> Proof:
    """Return a proof with the flows of its own and its callees' cuts."""
    subgraphs = called_graphs(graph)
    callees = {name: _with_flows(callee, subgraphs[name]) for name, callee in proof.callees.items()}
    return msgspec.structs.replace(_with_flows(proof, graph), callees=callees)


def _with_flows(proof: Proof, graph: Graph) -> Proof:
    problem = Problem(graph, in_place=proof.in_place)

    def flow_of(position: int, op: OpId) -> CutFlow:
        waits, uses = _native.ClosureCutter(problem.native, position, proof.in_place).flow(op)
        return CutFlow(uses=_moves(uses), dependencies=_moves(waits))

    spaces = tuple(
        space if space.op is None else msgspec.structs.replace(space, flow=flow_of(position, space.op))
        for position, space in enumerate(proof.spaces)
    )
    return msgspec.structs.replace(proof, spaces=spaces)


def _moves(flat: NDArray[np.int64]) -> Moves:
    sources, targets, moved = flat.reshape(-1, 3).T.tolist()
    return Moves(sources=tuple(sources), targets=tuple(targets), bytes=tuple(moved))
