"""The figures of a report as JSON."""

from lowtide.core.documents import fields_of
from lowtide.engine.analysis.folding import Fold
from lowtide.engine.analysis.holders_at_peak import Holder
from lowtide.reporting.claims import caption, claims_to_json
from lowtide.reporting.fields import HolderFields, MemberFields, ReportFields
from lowtide.reporting.frontier import frontier_to_json
from lowtide.reporting.page.facts import Facts
from lowtide.reporting.shortfall import verdict

_MOST_HOLDERS = 200
_MOST_IN_A_FOLD = 40
_MOST_ACTIONS = 200


def figures(facts: Facts) -> ReportFields:
    graph, plan, actions = facts.graph, facts.plan, facts.actions
    return fields_of(
        ReportFields,
        facts,
        name=graph.name,
        n_ops=graph.n_ops,
        n_buffers=graph.n_buffers,
        status=plan.status,
        verdict=verdict(plan, is_missed=facts.shortfall is not None),
        arena_bytes=dict(plan.arena_bytes),
        lower_bound_bytes=dict(plan.lower_bound_bytes),
        bound_sentence=caption(plan.claims),
        claims=claims_to_json(plan.claims),
        budget_bytes=dict(facts.allowed_bytes),
        persistent_bytes=graph.persistent_bytes(),
        extra_cost=actions.extra_cost,
        base_cost=actions.base_cost,
        costs=facts.prices.profile,
        n_moved=len(actions.moved),
        moved=actions.moved[:_MOST_ACTIONS],
        n_shared=len(actions.shared),
        shared=actions.shared[:_MOST_ACTIONS],
        n_reruns=sum(row.times for row in actions.reruns),
        reruns=actions.reruns[:_MOST_ACTIONS],
        n_copied=len(actions.copied),
        copied=actions.copied[:_MOST_ACTIONS],
        transfers=actions.transfers,
        n_holders=sum(len(each.holders) for each in facts.holders),
        holders=[_fold_to_json(facts, each) for each in facts.holders[:_MOST_HOLDERS]],
        frontier=None if facts.frontier is None else frontier_to_json(facts.frontier),
        outputs=None if facts.measured is None else facts.measured.in_short(),
        unmodeled=graph.unmodeled,
    )


def _fold_to_json(facts: Facts, each: Fold[Holder]) -> HolderFields:
    return fields_of(
        HolderFields,
        each.first,
        label=each.label,
        count=len(each.holders),
        size_bytes=each.size_bytes,
        made_at=each.made_at,
        freed_by=facts.ways_to_lower(each.first),
        members=[fields_of(MemberFields, holder) for holder in each.holders[:_MOST_IN_A_FOLD]],
    )
