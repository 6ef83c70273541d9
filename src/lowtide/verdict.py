"""What a plan is worth: whether it is optimal, or why no plan stays within the limits."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lowtide.analysis.bound_holders import BoundHolder, bound_holders
from lowtide.analysis.lower_bounds import LowerBound
from lowtide.analysis.problem import Problem
from lowtide.budget import Budget
from lowtide.plan import Status
from lowtide.search import Proof

_MOST_NAMED = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What a plan is worth."""

    bounds: Sequence[LowerBound]
    """Per memory space, what no plan can beat with the means that are allowed."""
    proof: Proof | None = None
    """What shows that the bounds hold, where it can be checked again."""
    status: Status
    shortfall: str | None
    """Why the limits are not met, in one sentence."""


def judge(
    problem: Problem,
    limit: Budget,
    bounds: Sequence[LowerBound],
    proof: Proof | None,
    peak: Mapping[str, int],
) -> Verdict:
    """Return what a plan is worth; of the limits that are not met, one proven impossible comes first.

    `bounds` hold for every order of the problem, `proof` says which of them single ops set; `peak` is the plan's.
    """
    graph = problem.graph
    cuts = {} if proof is None else {space.space: space.cut_bytes for space in proof.spaces}
    persistent = graph.persistent_bytes()
    unproven: str | None = None
    for bound in bounds:
        space, by = bound.space, limit.limited_by[bound.space]
        most = limit.allowed[space]
        if most is None or peak[space] <= most:
            continue
        if most < 0:
            reason = (
                f"persistent buffers alone need {persistent[space]} bytes in {space}, {-most} more than {by} allows"
            )
            return Verdict(bounds=bounds, proof=proof, status="infeasible", shortfall=reason)
        if bound.peak_bytes > most:
            names = ""
            if cuts.get(space, 0) <= most:
                needed, who = bound.peak_bytes, "every order needs at least"
            elif bound.op is None:
                needed, who = bound.peak_bytes, "inputs and outputs alone need"
            else:
                needed, who = cuts[space], f"op {graph.op_names[bound.op]!r} alone needs"
                forced = [holder for holder in bound_holders(problem, bounds) if holder.space == space]
                names = _named(forced)
            reason = (
                f"{who} {needed} bytes in {space}, {needed - most} more than the {most} that {by} leaves beside "
                f"persistent buffers{names}"
            )
            return Verdict(bounds=bounds, proof=proof, status="infeasible", shortfall=reason)
        unproven = unproven or (
            f"the best plan found needs {peak[space]} bytes in {space}, {peak[space] - most} more than the {most} that "
            f"{by} leaves beside persistent buffers; no proof that none fits"
        )
    met = all(bound.peak_bytes == peak[bound.space] for bound in bounds)
    status: Status = "optimal" if met and unproven is None else "feasible"
    return Verdict(bounds=bounds, proof=proof, status=status, shortfall=unproven)


def _named(holders: Sequence[BoundHolder]) -> str:
    """Say what is live at a bound, the largest by name."""
    if not holders:
        return ""
    rest = holders[_MOST_NAMED:]
    parts = [f"{holder.name} ({holder.size_bytes})" for holder in holders[:_MOST_NAMED]]
    if rest:
        parts.append(f"{len(rest)} more ({sum(holder.size_bytes for holder in rest)})")
    return f"; live then: {', '.join(parts)}"
