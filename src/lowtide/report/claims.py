"""How claims read: one sentence for people, one object for programs."""

from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

from lowtide.plan.claim import Claim, Figure


def claim_to_json(claim: Claim) -> dict[str, Any]:
    """Return a claim as a JSON object, with its sentence."""
    return {**asdict(claim), "sentence": claim.sentence}


def claims_to_json(claims: Iterable[Claim]) -> list[dict[str, Any]]:
    """Return claims as JSON objects."""
    return [claim_to_json(claim) for claim in claims]


def caption(claims: Iterable[Claim], figure: Figure = "peak") -> str:
    """Return what stands beside the bound of a figure: no plan of which class can beat it."""
    sentences = dict.fromkeys(claim.sentence for claim in claims if claim.figure == figure)
    return "; ".join(sentences) or "nothing is shown"
