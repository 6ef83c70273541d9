"""Recheck the proof of a lower bound on the extra cost, without the code that found it."""

import math
from fractions import Fraction

import numpy as np

from lowtide.core.errors import ProofError
from lowtide.engine.graph import Graph
from lowtide.engine.graph.execution import is_valid_order, transient_bytes
from lowtide.engine.search.check_cases import CaseError, least_cost
from lowtide.engine.search.plain_copies import PlainCopies
from lowtide.engine.search.plain_program import PlainProgram
from lowtide.engine.search.plain_reruns import PlainReruns
from lowtide.engine.search.proof_of_cost import CostProof


def check_cost(graph: Graph, proof: CostProof, *, in_place: bool) -> float:
    """Return the confirmed bound of a proof, infinite if it shows that no plan fits.

    The bound is that of exact arithmetic, to the nearest double. Raises ProofError if the cases do not show it.
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
    """Return a bound, rounded up if all costs are multiples of the smallest one. Stalls are not."""
    costs = [Fraction(cost) for cost in proof.costs if cost > 0]
    unit = min(costs, default=Fraction(0))
    if not unit or proof.seconds or any(cost % unit for cost in costs):
        return least
    return math.ceil(least / unit) * unit


def _wrong(why: str) -> ProofError:
    return ProofError(f"wrong proof for the extra cost: {why}; make it again with lowtide plan")
