"""The second stage: another order, where one needs less than the program's."""

from dataclasses import replace

from lowtide.core.progress import Report
from lowtide.engine.planning.draft import Draft, stage
from lowtide.engine.schedule import make_candidate, make_candidate_within, with_least_arena


@stage
def order(draft: Draft, report: Report) -> Draft:
    """Return the draft with the order that the settings ask for, where that beats the program's, and its bounds.

    Without a budget, the order is one of least peak, and of those the one of least arena where buffers get addresses.
    With a budget, it is one that fits and moves few ops: none where the program fits as it stands.
    """
    if draft.interrupted:
        return draft
    graph, settings = draft.graph, draft.settings
    name, in_place, effort = settings.order_name, settings.takes_pairs, settings.effort
    just_fit = settings.budget is not None and settings.chooses_order
    if just_fit and draft.fits:
        name, just_fit = "given", False
    keep = draft.keep_so_far
    report(f"ordering {graph.n_ops} ops ({name})")
    if just_fit:
        found = make_candidate_within(draft.budget, graph, in_place=in_place, effort=effort, progress=report, keep=keep)
    else:
        found = make_candidate(
            name, graph, in_place=in_place, effort=effort, budget=draft.budget, progress=report, keep=keep
        )
    draft = replace(draft, bounds=found.bounds, proof=found.proof, solved=found.solved, interrupted=found.interrupted)
    if not draft.is_beaten_by(found.plan):
        return draft
    if not just_fit and settings.addresses:
        found = with_least_arena(found)
    draft = draft.taking(found.plan, found.packing)
    return replace(draft, scheduler=found.scheduler, interrupted=found.interrupted)
