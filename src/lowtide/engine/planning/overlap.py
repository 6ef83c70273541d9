"""The fifth stage: collectives beside computation, where order may change and memory allows."""

from dataclasses import replace

import numpy as np

from lowtide.core.progress import Report
from lowtide.engine.overlap import hide_collectives
from lowtide.engine.planning.draft import Draft, stage

_WAITS_AT_ONCE = "cpu"
"""The memory space of PyTorch's CPU, where a collective is waited for where it starts: nothing would hide."""


@stage
def overlap(draft: Draft, report: Report) -> Draft:
    """Return the draft with collectives that start earlier and inputs of theirs that are freed later.

    What would wait for them may run later. A budget that was given bounds what all that takes; else, or where it is not
    met, the plan's own peak does. What runs, and the order of ordered ops, stays: so does what is known of the cost.
    """
    graph, plan = draft.graph, draft.plan
    waits_at_once = graph.spaces[0].name == _WAITS_AT_ONCE
    if draft.interrupted or not draft.settings.chooses_order or waits_at_once or not (graph.ranks > 1).any():
        return draft
    report("hiding collectives behind computation")
    allowed = dict(plan.peak_bytes)
    if draft.settings.budget is not None:
        allowed = {space: max(peak, draft.budget.allowed[space] or 0) for space, peak in allowed.items()}
    hidden = hide_collectives(graph, plan, draft.prices, allowed)
    if hidden is plan:
        return draft
    is_least_peak = draft.is_optimal and draft.base_order is None
    loses_that = is_least_peak and dict(hidden.peak_bytes) != dict(plan.peak_bytes)
    return replace(
        draft.taking(hidden),
        is_optimal=draft.is_optimal and not loses_that,
        scheduler="overlap" if np.array_equal(plan.order(), draft.problem.given_order()) else draft.scheduler,
    )
