"""A search that was done: what it was asked, what it said, and the proof of that, with logs once somebody asks."""

from dataclasses import dataclass
from functools import cached_property

import msgspec

from lowtide.core.effort import SearchEffort
from lowtide.engine.analysis.problem import Problem
from lowtide.engine.search.flows import with_flows
from lowtide.engine.search.proof import Proof, RefutedBudget, SpaceProof, prove
from lowtide.engine.search.refutation import find_refutation
from lowtide.engine.search.solve import Solution

_LEAST_FOR_A_LOG = 200_000_000
_OPS_FOR_A_LOG = 1_000
"""Beyond so many ops, the least work gets less: each deduction also takes time that no arc counts."""
_LOG_TO_SEARCH = 8
"""How much more work than the search itself the log of what it refuted may take."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Searched:
    """A problem with the solution that a search of some effort found."""

    problem: Problem
    solution: Solution
    effort: SearchEffort

    @cached_property
    def proof(self) -> Proof:
        """What bounds the peak, without a log of what only the search refuted."""
        solution = self.solution
        return prove(self.problem, solution.cuts, solution.refuted, tree_bytes=solution.tree_bytes)

    @cached_property
    def logged_proof(self) -> Proof:
        """The proof with the flows of its cuts, and a log of the highest budget that was refuted in every space.

        A log shows all budgets below it as well; not for every one a log is found. To look for it takes up to eight
        times the work of the search, so it is done when first asked for, and not after Ctrl-C. Deterministic; Ctrl-C
        raises KeyboardInterrupt.
        """
        if self.solution.interrupted:
            return self.proof
        spaces = tuple(self._with_log(position, space) for position, space in enumerate(self.proof.spaces))
        return with_flows(msgspec.structs.replace(self.proof, spaces=spaces), self.problem.graph)

    def _with_log(self, position: int, space: SpaceProof) -> SpaceProof:
        if not space.refuted:
            return space
        least = _LEAST_FOR_A_LOG // max(1, self.problem.graph.n_ops // _OPS_FOR_A_LOG)
        most = min(self.effort.fit_work // 2, max(least, _LOG_TO_SEARCH * self.solution.work))
        below = space.bound_bytes - 1
        log = find_refutation(self.problem, self.solution.order, position, below, most)
        *lower, highest = space.refuted
        logged: RefutedBudget = msgspec.structs.replace(highest, log=log)
        return msgspec.structs.replace(space, refuted=(*lower, logged))
