"""The fourth stage: whether the plan is optimal, or why it exceeds a limit."""

from dataclasses import replace

from lowtide.core.index_spaces import SpaceId
from lowtide.core.progress import Report
from lowtide.core.techniques import NEED_BUDGET
from lowtide.engine.analysis.budget import Shortfall
from lowtide.engine.analysis.lower_bounds import LowerBound, bound_holders, lower_bounds, own_bytes
from lowtide.engine.planning.claims import claims_of_peaks
from lowtide.engine.planning.draft import Draft, stage
from lowtide.engine.planning.trade import bounds_with_reruns
from lowtide.engine.search import prove


@stage
def judge(draft: Draft, report: Report) -> Draft:
    """Return the draft with bounds and a verdict, unless an earlier stage judged it.

    After Ctrl-C no bound is computed or claimed: that may take long.
    """
    if draft.is_judged:
        return draft
    problem, bounds, proof, solved = draft.problem, draft.bounds, draft.proof, draft.solved
    if draft.settings.techniques & NEED_BUDGET:
        bounds = bounds_with_reruns(problem, copies="offload" in draft.settings.techniques)
        proof, solved = None, None
    elif not bounds and draft.interrupted:
        bounds = tuple(LowerBound(space=space.name, peak_bytes=0, op=None) for space in problem.graph.spaces)
    elif not bounds:
        report("bounding the peak from below")
        bounds = tuple(lower_bounds(problem, [problem.given_order(), draft.plan.order()]))
        proof = prove(problem, bounds)
    draft = replace(draft, bounds=bounds, proof=proof, solved=solved)
    met = all(bound.peak_bytes == draft.plan.peak_bytes[bound.space] for bound in bounds)
    return replace(draft, is_judged=True, is_optimal=met, shortfall=_shortfall(draft))


def _shortfall(draft: Draft) -> Shortfall | None:
    found = [missed for place in range(len(draft.bounds)) if (missed := _shortfall_in(draft, place)) is not None]
    return next((missed for missed in found if missed.is_impossible), found[0] if found else None)


def _shortfall_in(draft: Draft, place: SpaceId) -> Shortfall | None:
    problem, bound, graph = draft.problem, draft.bounds[place], draft.graph
    space, most, reached = bound.space, draft.budget.allowed[bound.space], draft.plan.peak_bytes[bound.space]
    if most is None or reached <= most:
        return None
    missed = Shortfall(
        space=space,
        limited_by=draft.budget.limited_by[space],
        allowed_bytes=most,
        reached_bytes=reached,
        cause="not found",
    )
    if most < 0:
        persistent = graph.persistent_bytes()[space]
        return replace(missed, cause="persistent buffers", is_impossible=True, needed_bytes=persistent)
    if bound.peak_bytes <= most:
        return missed
    claim = next((claim for claim in claims_of_peaks(draft) if claim.space == space), None)
    missed = replace(missed, is_impossible=True, claim=claim, needed_bytes=bound.peak_bytes)
    cuts = {} if draft.proof is None else {known.space: known.cut_bytes for known in draft.proof.spaces}
    if cuts.get(space, 0) <= most:
        return replace(missed, cause="every order")
    if bound.op is None:
        return replace(missed, cause="inputs and outputs")
    return replace(
        missed,
        cause="op",
        op=graph.described(bound.op),
        op_bytes=own_bytes(graph, bound.op, place),
        needed_bytes=cuts[space],
        holders=tuple(holder for holder in bound_holders(problem, draft.bounds) if holder.space == space),
    )
