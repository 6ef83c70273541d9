"""Check a plan together with its proof."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache

from lowtide.core.errors import ProofError
from lowtide.engine.graph import Graph
from lowtide.engine.plan import Plan, StepKind
from lowtide.engine.plan.claim import Claim
from lowtide.engine.plan.verify import is_of_class
from lowtide.engine.search.check_proof import CheckedBound, check_proof
from lowtide.engine.search.plain_needs import needed_in_any_plan, needed_to_gather
from lowtide.engine.search.proof import Proof


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedClaim:
    """A claim of a plan, and whether it was shown without the code that found it."""

    claim: Claim
    is_shown: bool


def check_certificate(
    graph: Graph, plan: Plan, proof: Proof | None
) -> tuple[list[CheckedClaim], Sequence[CheckedBound]]:
    """Return the claims of a verified plan with whether each is shown, and the checked bounds of its proof.

    The proof shows claims about all orders; the bytes of each op show claims about all reruns. A claim about an arena
    is shown if the peak is as large, and one about an extra cost if it is 0. Without claims, the plan's bounds count as
    claims.
    Raises ProofError if plan and proof contradict one another, and the errors of `check_proof`.
    """
    checked: Sequence[CheckedBound] = ()
    if proof is not None:
        checked = check_proof(graph, proof)
        _refuse_contradictions(graph, plan, proof)
    shown = {bound.space: bound.confirmed_bytes for bound in checked}

    @cache
    def needed(space: str, in_place: bool, gathering: bool) -> int:
        return (needed_to_gather if gathering else needed_in_any_plan)(graph, space, in_place=in_place)

    claims = plan.claims or tuple(_plain_claims(graph, plan, in_place=proof is None or proof.in_place))
    return [
        CheckedClaim(claim=claim, is_shown=_is_shown(graph, plan, claim, shown, needed)) for claim in claims
    ], checked


def _refuse_contradictions(graph: Graph, plan: Plan, proof: Proof) -> None:
    if not proof.in_place and len(plan.pairs.values):
        raise ProofError("the proof is for plans without in-place pairs, but the plan uses some; prove it with pairs")
    by_order = {claim.space: claim for claim in _claims_of_orders(graph, plan, proof)}
    for space, bound in proof.bound_bytes.items():
        claim = by_order.get(space)
        if claim is None:
            continue
        if claim.in_place != proof.in_place:
            raise ProofError("plan and proof differ in their use of in-place pairs; make both with the same setting")
        if claim.at_least != bound:
            raise ProofError(
                f"the plan claims a bound of {claim.at_least} bytes in memory space {space!r}, the proof shows "
                f"{bound}; make both again"
            )
        if is_of_class(plan, claim, graph.n_ops) and plan.peak_bytes.get(space, bound) < bound:
            raise ProofError(
                f"the plan needs {plan.peak_bytes[space]} bytes in memory space {space!r}, less than the proof's "
                f"bound of {bound}; the proof is wrong, make it again"
            )


def _claims_of_orders(graph: Graph, plan: Plan, proof: Proof) -> Iterator[Claim]:
    """Yield the plan's claims about all orders, or its bounds of that class."""
    for claim in plan.claims or _plain_claims(graph, plan, in_place=proof.in_place):
        if claim.over == "orders" and (plan.claims or is_of_class(plan, claim, graph.n_ops)):
            yield claim


def _plain_claims(graph: Graph, plan: Plan, *, in_place: bool) -> Iterator[Claim]:
    """Yield the bounds of a plan as claims of its narrowest class."""
    copies = bool((plan.kinds == StepKind.COPY_OUT).any())
    reruns = int((plan.kinds == StepKind.RUN).sum()) > graph.n_ops
    for space, least in plan.lower_bound_bytes.items():
        if least > 0:
            yield Claim(
                figure="peak",
                space=space,
                over="copies" if copies else "reruns" if reruns else "orders",
                at_least=least,
                in_place=in_place,
                in_chunks=False,
                shown_by="needs" if copies or reruns else "cut",
            )


def _is_shown(
    graph: Graph, plan: Plan, claim: Claim, by_proof: dict[str, int], needed: Callable[[str, bool, bool], int]
) -> bool:
    if claim.figure == "extra cost":
        return claim.at_least == 0
    space = claim.space or ""
    if claim.figure == "arena" and claim.over == "placements":
        return claim.at_least <= plan.peak_bytes.get(space, 0)
    if claim.over == "orders" and claim.at_least <= by_proof.get(space, -1):
        return True
    if graph.subgraphs:
        return False
    return claim.at_least <= needed(space, claim.in_place, False) or (
        claim.over != "copies" and claim.at_least <= needed(space, claim.in_place, True)
    )
