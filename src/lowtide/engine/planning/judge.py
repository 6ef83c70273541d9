"""The fourth stage: whether the plan is optimal, or why no plan stays within the limits."""

from dataclasses import replace

from lowtide.core.progress import Report
from lowtide.core.techniques import NEED_BUDGET
from lowtide.core.units import ByteUnit
from lowtide.engine.analysis.folding import named_largest
from lowtide.engine.analysis.lower_bounds import LowerBound, bound_holders, describe_need, lower_bounds
from lowtide.engine.plan import Status
from lowtide.engine.planning.claims import claims_of_peaks
from lowtide.engine.planning.draft import Draft, stage
from lowtide.engine.planning.trade import bounds_with_reruns
from lowtide.engine.search import prove


@stage
def judge(draft: Draft, report: Report) -> Draft:
    """Return the draft with what no plan can beat, its status, and why the budget is not met, where it is not.

    What an earlier stage knows stays. Finding bounds can take long: after Ctrl-C none is claimed.
    """
    if draft.status is not None:
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
    status, shortfall = _verdict(draft)
    return replace(draft, status=status, shortfall=shortfall)


def _verdict(draft: Draft) -> tuple[Status, str | None]:
    """Return the status of a draft's plan with the reason why it fits no limit, one proven impossible first.

    The reason of an impossible one ends with the claim that shows it.
    """
    problem, limit, bounds, proof = draft.problem, draft.budget, draft.bounds, draft.proof
    graph, peak = problem.graph, draft.plan.peak_bytes
    shown = {claim.space: claim.sentence for claim in claims_of_peaks(draft)}
    cuts = {} if proof is None else {space.space: space.cut_bytes for space in proof.spaces}
    persistent = graph.persistent_bytes()
    unproven: str | None = None
    for place, bound in enumerate(bounds):
        space, by = bound.space, limit.limited_by[bound.space]
        most = limit.allowed[space]
        if most is None or peak[space] <= most:
            continue
        unit = ByteUnit(peak[space], persistent[space])
        if most < 0:
            reason = (
                f"persistent buffers alone need {unit.write(persistent[space])} in {space}, {unit.write(-most)} more "
                f"than {by} allows; beside them the best plan found needs {unit.write(peak[space])}"
            )
            return "infeasible", reason
        if bound.peak_bytes > most:
            names = ""
            if cuts.get(space, 0) <= most:
                needed, who = bound.peak_bytes, "every order needs at least"
            elif bound.op is None:
                needed, who = bound.peak_bytes, "inputs and outputs alone need"
            else:
                needed = cuts[space]
                who = describe_need(graph, bound.op, place, needed)
                forced = [holder for holder in bound_holders(problem, bounds) if holder.space == space]
                names = f"; live then: {named_largest(forced, unit)}" if forced else ""
            reason = (
                f"{who} {unit.write(needed)} in {space}, {unit.write(needed - most)} more than the {unit.write(most)} "
                f"that {by} leaves beside persistent buffers ({shown[space]}){names}"
            )
            return "infeasible", reason
        unproven = unproven or (
            f"the best plan found needs {unit.write(peak[space])} in {space}, {unit.write(peak[space] - most)} more "
            f"than the {unit.write(most)} that {by} leaves beside persistent buffers; no proof that none fits"
        )
    met = all(bound.peak_bytes == peak[bound.space] for bound in bounds)
    return "optimal" if met and unproven is None else "feasible", unproven
