"""The claims of a plan."""

from collections.abc import Iterator, Mapping
from dataclasses import replace

from lowtide.engine.packing import Packing
from lowtide.engine.plan.claim import Claim, Evidence, PlanClass
from lowtide.engine.planning.draft import Draft
from lowtide.engine.search import Proof


def claims_of(draft: Draft, packing: Packing | None) -> tuple[Claim, ...]:
    arenas = () if packing is None else _of_arenas(draft, packing)
    return (*claims_of_peaks(draft), *arenas, *_of_cost(draft))


def peak_claims(
    bounds: Mapping[str, int], proof: Proof | None, over: PlanClass, *, in_place: bool, in_chunks: bool = False
) -> list[Claim]:
    """Return a claim per memory space with a positive lower bound."""
    return [
        Claim(
            figure="peak",
            space=space,
            over=over,
            at_least=least,
            in_place=in_place,
            in_chunks=in_chunks,
            shown_by="needs" if over != "orders" else _evidence(proof, space),
        )
        for space, least in bounds.items()
        if least > 0
    ]


def _evidence(proof: Proof | None, space: str) -> Evidence:
    for known in () if proof is None else proof.spaces:
        if known.space == space and known.bound_bytes > known.cut_bytes:
            return "tree" if known.bound_bytes == known.tree_bytes else "search"
    return "cut"


def claims_of_peaks(draft: Draft) -> list[Claim]:
    bounds = {bound.space: bound.peak_bytes for bound in draft.bounds}
    claims = peak_claims(
        bounds, draft.proof, draft.bounds_hold_for, in_place=draft.settings.takes_pairs, in_chunks=draft.in_chunks
    )
    first = draft.graph.spaces[0].name
    return [
        replace(claim, shown_by="search") if draft.searched_peak and claim.space == first else claim for claim in claims
    ]


def _of_arenas(draft: Draft, packing: Packing) -> Iterator[Claim]:
    for space, least in packing.lower_bound_bytes.items():
        if least > 0:
            yield Claim(
                figure="arena",
                space=space,
                over="placements",
                at_least=least,
                in_place=draft.settings.takes_pairs,
                in_chunks=draft.in_chunks,
                shown_by="packing",
            )


def _of_cost(draft: Draft) -> Iterator[Claim]:
    if draft.base_order is None or draft.extra_cost_bound is None:
        return
    if draft.holds_for_any_order:
        over: PlanClass = "reruns"
    else:
        over = "copies of one order" if "offload" in draft.settings.techniques else "reruns of one order"
    yield Claim(
        figure="extra cost",
        space=None,
        over=over,
        at_least=draft.extra_cost_bound,
        in_place=draft.settings.takes_pairs,
        in_chunks=draft.in_chunks,
        shown_by=_evidence_of_cost(draft),
        base_order=None if draft.holds_for_any_order else draft.base_order,
    )


def _evidence_of_cost(draft: Draft) -> Evidence:
    has_copies = "offload" in draft.settings.techniques
    is_searched = draft.provable_cost is None and bool(draft.extra_cost_bound) and not has_copies
    return "search" if draft.holds_for_any_order or is_searched else "duals"
