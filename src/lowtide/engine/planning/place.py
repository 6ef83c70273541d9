"""The sixth stage: an address for every buffer."""

from dataclasses import replace

from lowtide.core.progress import Report
from lowtide.engine.packing import pack_plan
from lowtide.engine.planning.claims import claims_of
from lowtide.engine.planning.draft import Draft, stage
from lowtide.engine.planning.tighten import tighten


@stage
def place(draft: Draft, report: Report) -> Draft:
    """Return the draft with claims attached to its plan, and addresses where they are asked for.

    Reruns of the plan may move for a smaller arena then.
    """
    if draft.settings.addresses:
        draft = _packed(draft, report)
    packing = draft.packing
    plan = draft.plan.with_claims(
        status=draft.status,
        peak_bytes=draft.plan.peak_bytes,
        lower_bound_bytes={bound.space: bound.peak_bytes for bound in draft.bounds},
        arena_bytes={} if packing is None else packing.arena_bytes,
        addresses=() if packing is None else packing.addresses,
        claims=claims_of(draft, packing),
    )
    return replace(draft, plan=plan)


def _packed(draft: Draft, report: Report) -> Draft:
    """Return the draft with a packing of its buffers.

    One that an earlier stage made is kept where this one could make no other: it is proven the smallest, or was made
    with as much effort.
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
    return replace(draft, packing=packing, interrupted=interrupted)
