"""Claims as sentences and as JSON objects."""

from collections.abc import Iterable
from typing import NotRequired, TypedDict

from lowtide.core.documents import fields_of
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


def claims_to_json(claims: Iterable[Claim]) -> list[ClaimFields]:
    return [fields_of(ClaimFields, claim) for claim in claims]


def caption(claims: Iterable[Claim]) -> str:
    """Return the class of plans that a bound of the peak holds for."""
    sentences = dict.fromkeys(claim.sentence for claim in claims if claim.figure == "peak")
    return "; ".join(sentences) or "nothing is proven"
