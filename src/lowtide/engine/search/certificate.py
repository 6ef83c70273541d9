"""Check a plan together with its proof, without the code that found it."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache

import numpy as np

from lowtide.core.errors import ProofError
from lowtide.engine.graph import Graph
from lowtide.engine.graph.execution import is_valid_order, transient_bytes
from lowtide.engine.plan import Plan, StepKind
from lowtide.engine.plan.claim import Claim, PlanClass
from lowtide.engine.plan.verify import is_of_class
from lowtide.engine.search.check_cases import CaseError, least_cost
from lowtide.engine.search.check_proof import CheckedBound, check_proof
from lowtide.engine.search.plain_copies import PlainCopies
from lowtide.engine.search.plain_needs import needed_in_any_plan, needed_to_gather
from lowtide.engine.search.plain_program import PlainProgram
from lowtide.engine.search.plain_reruns import PlainReruns
from lowtide.engine.search.proof import Proof
from lowtide.engine.search.proof_of_cost import CostProof

_ROUNDING = 1e-12


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedClaim:
    """A plan's claim, and whether it is shown."""

    claim: Claim
    is_shown: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificate:
    """The claims of a plan, and the checked bounds of its proof."""

    claims: Sequence[CheckedClaim]
    bounds: Sequence[CheckedBound]
    extra_cost: float | None
    """Infinite if no plan fits; None without a proof."""


def check_certificate(graph: Graph, plan: Plan, proof: Proof | None) -> Certificate:
    """Return a verified plan's claims with whether each is shown, and the checked bounds of its proof.

    A claim about an arena is shown if the peak is as large, one about an extra cost if it is 0. Without claims, the
    plan's bounds count. Raises ProofError if plan and proof contradict one another, and as `check_proof`.
    """
    checked: Sequence[CheckedBound] = ()
    if proof is not None:
        checked = check_proof(graph, proof)
        _refuse_contradictions(graph, plan, proof)
    shown = {bound.space: bound.confirmed_bytes for bound in checked}
    extra_cost = None if proof is None or proof.cost is None else _checked_cost(graph, plan, proof, proof.cost)

    @cache
    def needed(space: str, in_place: bool, gathering: bool) -> int:
        return (needed_to_gather if gathering else needed_in_any_plan)(graph, space, in_place=in_place)

    claims = plan.claims or tuple(_plain_claims(graph, plan, in_place=proof is None or proof.in_place))
    return Certificate(
        claims=[
            CheckedClaim(
                claim=claim,
                is_shown=_is_shown_cost(plan, claim, proof, extra_cost)
                if claim.figure == "extra cost"
                else _is_shown(graph, plan, claim, shown, needed),
            )
            for claim in claims
        ],
        bounds=checked,
        extra_cost=extra_cost,
    )


def _checked_cost(graph: Graph, plan: Plan, proof: Proof, cost: CostProof) -> float:
    confirmed = check_cost(graph, cost, in_place=proof.in_place)
    copies = bool((plan.kinds == StepKind.COPY_OUT).any())
    if _is_of_proof(plan, cost) and not copies and not cost.seconds:
        runs: list[int] = plan.order().tolist()
        extra = math.fsum(cost.costs[op] for op in runs) - math.fsum(cost.costs)
        if extra < confirmed - _ROUNDING * math.fsum(cost.costs):
            raise ProofError(
                f"the plan's extra cost is {extra}, less than the proof's bound of {confirmed}; make it again"
            )
    return confirmed


def _is_of_proof(plan: Plan, cost: CostProof) -> bool:
    first_runs = tuple(dict.fromkeys(plan.order().tolist()))
    return first_runs == cost.order and plan.peak_bytes.get(cost.space, 0) <= cost.budget_bytes


def _class_of(cost: CostProof) -> PlanClass:
    return "copies of one order" if cost.seconds else "reruns of one order"


def _is_shown_cost(plan: Plan, claim: Claim, proof: Proof | None, confirmed: float | None) -> bool:
    if claim.at_least == 0:
        return True
    if proof is None or proof.cost is None or confirmed is None or claim.over != _class_of(proof.cost):
        return False
    return claim.at_least <= confirmed and claim.in_place <= proof.in_place and _is_of_proof(plan, proof.cost)


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
    for claim in plan.claims or _plain_claims(graph, plan, in_place=proof.in_place):
        if claim.over == "orders" and (plan.claims or is_of_class(plan, claim, graph.n_ops)):
            yield claim


def _plain_claims(graph: Graph, plan: Plan, *, in_place: bool) -> Iterator[Claim]:
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


def check_cost(graph: Graph, proof: CostProof, *, in_place: bool) -> float:
    """Return a proof's bound once confirmed, infinite if it shows that no plan fits.

    Uses exact arithmetic. Raises ProofError if the cases do not show the bound.
    """
    names = [space.name for space in graph.spaces]
    order = np.asarray(proof.order, np.int32)
    if graph.called or proof.space not in names or not is_valid_order(graph, order):
        raise _wrong("it names another memory space or order, or the graph calls others")
    if len(proof.costs) != graph.n_ops or not all(math.isfinite(cost) and cost >= 0 for cost in proof.costs):
        raise _wrong("it needs one cost of at least 0 for each op")
    if list(proof.places) != sorted({*proof.places}) or any(place >= graph.n_ops for place in proof.places):
        raise _wrong("its places are not ascending places of the order")
    if proof.seconds and (len(proof.seconds) != graph.n_ops or not all(0 <= each < math.inf for each in proof.seconds)):
        raise _wrong("it needs one run time of at least 0 for each op")
    if proof.seconds and (len(proof.places) != 1 or proof.space != names[0]):
        raise _wrong("with copies it needs one place, in the first memory space")
    program = PlainProgram(graph, transient_bytes(graph, {}), in_place, names.index(proof.space))
    try:
        conditions = PlainCopies(program, proof) if proof.seconds else PlainReruns(program, proof)
        least = least_cost(conditions, proof.rows, proof.columns, proof.cases)
    except CaseError as error:
        raise _wrong(str(error)) from error
    confirmed = math.inf if least is None else float(_rounded_up(max(least, Fraction(0)), proof))
    claimed = math.inf if proof.at_least is None else proof.at_least
    if not claimed <= confirmed:
        raise _wrong(f"its cases show {confirmed:.6g}, not the claimed {claimed:.6g}")
    return claimed


def _rounded_up(least: Fraction, proof: CostProof) -> Fraction:
    costs = [Fraction(cost) for cost in proof.costs if cost > 0]
    unit = min(costs, default=Fraction(0))
    if not unit or proof.seconds or any(cost % unit for cost in costs):
        return least
    return math.ceil(least / unit) * unit


def _wrong(why: str) -> ProofError:
    return ProofError(f"wrong proof for the extra cost: {why}; make it again with lowtide plan")
