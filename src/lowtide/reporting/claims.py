"""Claims as sentences and as JSON objects."""

from collections.abc import Iterable
from typing import NotRequired, TypedDict

from lowtide.engine.plan import Plan
from lowtide.engine.plan.claim import Claim, Evidence, Figure, PlanClass


class ClaimFields(TypedDict):
    """A bound over a class of plans (`lowtide.engine.plan.claim.Claim`), with its sentence."""

    figure: Figure
    space: str | None
    over: PlanClass
    at_least: float
    in_place: bool
    in_chunks: bool
    shown_by: Evidence
    base_order: str | None
    sentence: str
    shown: NotRequired[bool]


def claim_to_json(claim: Claim) -> ClaimFields:
    """Return a claim as a JSON object, with its sentence."""
    return {
        "figure": claim.figure,
        "space": claim.space,
        "over": claim.over,
        "at_least": claim.at_least,
        "in_place": claim.in_place,
        "in_chunks": claim.in_chunks,
        "shown_by": claim.shown_by,
        "base_order": claim.base_order,
        "sentence": claim.sentence,
    }


def claims_to_json(claims: Iterable[Claim]) -> list[ClaimFields]:
    """Return claims as JSON objects."""
    return [claim_to_json(claim) for claim in claims]


def verdict(plan: Plan) -> str:
    """Return the status of a plan in words; for an optimal plan, with the class of plans that it beats."""
    if plan.status != "optimal":
        return plan.status
    over_cost = any(claim.figure == "extra cost" for claim in plan.claims)
    return "optimal: " + ("no plan within the budget takes less time" if over_cost else caption(plan.claims))


def caption(claims: Iterable[Claim], figure: Figure = "peak") -> str:
    """Return the caption of a bound: the class of plans that it holds for."""
    sentences = dict.fromkeys(claim.sentence for claim in claims if claim.figure == figure)
    return "; ".join(sentences) or "nothing is proven"
