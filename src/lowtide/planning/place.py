"""The sixth stage: an address for every buffer."""

from dataclasses import replace

from lowtide.packing import pack_plan
from lowtide.planning.claims import claims_of
from lowtide.planning.draft import Draft, stage
from lowtide.planning.tighten import tighten
from lowtide.progress import Report


@stage
def place(draft: Draft, report: Report) -> Draft:
    """Return the draft with addresses and claims attached to its plan, whose reruns may move for a smaller arena.

    A packing that an earlier stage made is kept where this one could make no other: it is proven the smallest, or was
    made with as much effort.
    """
    report("placing buffers")
    effort = "fast" if draft.interrupted else draft.settings.effort
    packing = draft.packing
    if packing is None or not (packing.is_smallest or packing.effort == effort):
        packing = pack_plan(draft.graph, draft.plan, draft.problem.transient, effort=effort, progress=report)
    interrupted = draft.interrupted or packing.interrupted
    if not interrupted:
        tighter, packing = tighten(draft, packing, effort, report)
        draft = replace(draft, plan=tighter)
    plan = draft.plan.with_claims(
        status="interrupted" if interrupted else draft.status or "feasible",
        peak_bytes=draft.plan.peak_bytes,
        lower_bound_bytes={bound.space: bound.peak_bytes for bound in draft.bounds},
        arena_bytes=packing.arena_bytes,
        addresses=packing.addresses,
        claims=claims_of(draft, packing),
    )
    return replace(draft, plan=plan, packing=packing, interrupted=interrupted)
