"""A plan and its proof as one certificate: which claims of the plan are shown, and that none contradicts the proof."""

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
    """A claim of a plan, and whether it was shown again without the code that found it."""

    claim: Claim
    is_shown: bool


def check_certificate(
    graph: Graph, plan: Plan, proof: Proof | None
) -> tuple[list[CheckedClaim], Sequence[CheckedBound]]:
    """Check the claims of a verified plan, against its proof where there is one; returns both with what was shown.

    A claim of all orders is shown by the proof. One of all reruns is shown by adding up what every op needs, and what
    is there while its operands are brought together. One of an arena is shown where the peak says as much, one of an
    extra cost where it claims nothing. Whatever else a plan claims is not shown, which is no error. Plain bounds of a
    plan without claims count as claims.
    Raises ProofError where plan and proof contradict one another: in their setting of in-place pairs, in a bound, or
    because the plan needs less than the proof says that any can; and what `check_proof` raises. Complexity: that of
    `check_proof`.
    """
    checked: Sequence[CheckedBound] = ()
    if proof is not None:
        checked = check_proof(graph, proof)
        _contradict(graph, plan, proof)
    shown = {bound.space: bound.confirmed_bytes for bound in checked}

    @cache
    def needed(space: str, in_place: bool, gathering: bool) -> int:
        return (needed_to_gather if gathering else needed_in_any_plan)(graph, space, in_place=in_place)

    claims = plan.claims or tuple(_plain_claims(graph, plan, in_place=proof is None or proof.in_place))
    return [
        CheckedClaim(claim=claim, is_shown=_is_shown(graph, plan, claim, shown, needed)) for claim in claims
    ], checked


def _contradict(graph: Graph, plan: Plan, proof: Proof) -> None:
    """Raise ProofError where plan and proof cannot both be right."""
    if not proof.in_place and len(plan.pairs.values):
        raise ProofError("the proof is of plans without in-place pairs, but the plan takes some; prove it with them")
    by_order = {claim.space: claim for claim in _of_orders(graph, plan, proof)}
    for space, bound in proof.bound_bytes.items():
        claim = by_order.get(space)
        if claim is None:
            continue
        if claim.in_place != proof.in_place:
            raise ProofError(
                f"the plan claims something of plans {_pairs(claim.in_place)}, the proof shows something of plans "
                f"{_pairs(proof.in_place)}; make both with the same setting"
            )
        if claim.at_least != bound:
            raise ProofError(
                f"the plan claims that no order needs less than {claim.at_least} bytes in memory space {space!r}, the "
                f"proof shows {bound}; one of them is wrong, make both again"
            )
        if is_of_class(plan, claim, graph.n_ops) and plan.peak_bytes.get(space, bound) < bound:
            raise ProofError(
                f"the plan needs {plan.peak_bytes[space]} bytes in memory space {space!r}, less than the {bound} that "
                "the proof says every order needs; the proof is wrong, make it again"
            )


def _of_orders(graph: Graph, plan: Plan, proof: Proof) -> Iterator[Claim]:
    """Yield what a plan claims of all orders; a plan without claims means its plain bounds, if it is of that class."""
    for claim in plan.claims or _plain_claims(graph, plan, in_place=proof.in_place):
        if claim.over == "orders" and (plan.claims or is_of_class(plan, claim, graph.n_ops)):
            yield claim


def _plain_claims(graph: Graph, plan: Plan, *, in_place: bool) -> Iterator[Claim]:
    """Yield the plain bounds of a plan as claims of the narrowest class that it is in, by its steps."""
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


def _pairs(taken: bool) -> str:
    return "with in-place pairs" if taken else "without in-place pairs"


def _is_shown(
    graph: Graph, plan: Plan, claim: Claim, by_proof: dict[str, int], needed: Callable[[str, bool, bool], int]
) -> bool:
    """Return whether a claim follows from what was checked, or from the graph alone."""
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
