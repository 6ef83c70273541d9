"""Recheck proofs without the code that found them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lowtide.core.errors import FingerprintError, ProofError
from lowtide.core.index_spaces import OpId
from lowtide.engine.graph import Graph
from lowtide.engine.graph.execution import transient_bytes
from lowtide.engine.search.check_cut import cut_of, is_closed_before, least_by_flow, least_needed, needed_after
from lowtide.engine.search.check_refutation import is_refuted
from lowtide.engine.search.plain_max_flow import TooMuchWorkError
from lowtide.engine.search.plain_orders import no_order_fits, plain_series_parallel_peak, plain_tree_peak
from lowtide.engine.search.plain_program import PlainProgram
from lowtide.engine.search.proof import Proof, SpaceProof

MAX_EXAMINED = 3_000_000
"""Limit on the ops examined per budget, some seconds in Python."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedBound:
    """The confirmed bound of one memory space."""

    space: str
    confirmed_bytes: int
    """The largest shown."""
    not_rechecked: tuple[int, ...]
    """Larger claimed bounds, too much work to check."""


def check_proof(graph: Graph, proof: Proof, *, max_examined: int = MAX_EXAMINED) -> Sequence[CheckedBound]:
    """Return the confirmed bounds of a proof, per memory space.

    A cut is confirmed by the proof's flow or a maximum flow, a refuted budget by its log or by trying all orders,
    within `max_examined` ops. Raises ProofError for a proof that does not show its claims, FingerprintError for the
    proof of another graph. O(e log e) per space, one flow per log line, plus the examined ops.
    """
    return _check(graph, proof, proof.callees, max_examined, {})


def _check(
    graph: Graph,
    proof: Proof,
    callees: Mapping[str, Proof],
    max_examined: int,
    checked: dict[str, Sequence[CheckedBound]],
) -> Sequence[CheckedBound]:
    if proof.graph != graph.fingerprint:
        raise FingerprintError(f"the proof is not for graph {graph.name!r}; make one for it with lowtide plan")
    if proof.cost is not None and not proof.spaces:
        return []
    if [space.space for space in proof.spaces] != [space.name for space in graph.spaces]:
        raise ProofError("proof and graph name different memory spaces; make the proof again with lowtide plan")
    for name in graph.called:
        inner = callees.get(name)
        if inner is None or inner.in_place != proof.in_place:
            raise ProofError(f"the proof lacks callee {name!r}; make it again")
        if name not in checked:
            checked[name] = _check(graph.subgraphs[name], inner, callees, max_examined, checked)
    confirmed = {name: {bound.space: bound.confirmed_bytes for bound in checked[name]} for name in graph.called}
    transient = transient_bytes(graph, confirmed)
    return [
        _check_space(graph, transient, proof.in_place, position, space, max_examined)
        for position, space in enumerate(proof.spaces)
    ]


def _check_space(
    graph: Graph, transient: NDArray[np.int64], in_place: bool, position: int, proof: SpaceProof, max_examined: int
) -> CheckedBound:
    program = PlainProgram(graph, transient, in_place, position)
    confirmed, not_rechecked = _check_cut(program, proof), list[int]()
    if confirmed < proof.cut_bytes:
        not_rechecked.append(proof.cut_bytes)
    confirmed = max(confirmed, proof.tree_bytes or 0)
    if proof.tree_bytes is not None:
        optimum = plain_tree_peak(program)
        if proof.tree_bytes != (plain_series_parallel_peak(program) if optimum is None else optimum):
            why = f"the graph is no tree or series-parallel graph with an optimal peak of {proof.tree_bytes} bytes"
            raise _wrong(proof, why)
    figures = [proof.cut_bytes, proof.tree_bytes or 0, *(budget.at_least_bytes for budget in proof.refuted)]
    if proof.bound_bytes != max(figures):
        raise _wrong(proof, f"its steps show {max(figures)} bytes, not the claimed {proof.bound_bytes}")
    for budget in sorted(proof.refuted, key=lambda budget: -budget.at_least_bytes):
        least = budget.at_least_bytes
        if least <= confirmed:
            break
        if budget.log:
            why = f"its log does not show that every order needs {least} bytes"
            try:
                is_shown = is_refuted(program, least - 1, budget.log)
            except TooMuchWorkError:
                is_shown = None
        else:
            why = f"some order needs less than the claimed {least} bytes"
            is_shown = no_order_fits(program, least - 1, max_examined)
        if is_shown is None:
            not_rechecked.append(least)
        elif is_shown:
            confirmed = least
        else:
            raise _wrong(proof, why)
    above = tuple(least for least in not_rechecked if least > confirmed)
    return CheckedBound(space=proof.space, confirmed_bytes=confirmed, not_rechecked=above)


def _check_cut(program: PlainProgram, proof: SpaceProof) -> int:
    if proof.op is None:
        if proof.before or proof.flow is not None or proof.cut_bytes != program.at_the_edges():
            raise _wrong(proof, f"inputs and outputs need exactly {program.at_the_edges()} bytes")
        return proof.cut_bytes
    before = _mask(program.n_ops, proof.before)
    if proof.op >= program.n_ops or before is None or not is_closed_before(program, proof.op, before):
        raise _wrong(proof, f"op {proof.op} cannot run after exactly the named ops")
    cut = cut_of(program, proof.op)
    needed = least = needed_after(cut, before)
    is_checked = True
    if proof.flow is not None:
        least = least_by_flow(program.structure, cut, proof.flow)
    else:
        try:
            least = least_needed(program, proof.op)
        except TooMuchWorkError:
            is_checked = False
    if least is None:
        raise _wrong(proof, f"the flow of op {proof.op} is invalid")
    if not proof.cut_bytes == needed == least:
        raise _wrong(proof, f"op {proof.op} needs {needed} bytes after the named ops and at least {least} in any order")
    return proof.cut_bytes if is_checked else min(proof.cut_bytes, program.at_the_edges())


def _mask(n_ops: int, ops: Sequence[OpId]) -> NDArray[np.bool_] | None:
    mask = np.zeros(n_ops, np.bool_)
    named = np.fromiter(ops, np.int64, len(ops))
    if (named >= n_ops).any():
        return None
    mask[named] = True
    return mask


def _wrong(proof: SpaceProof, why: str) -> ProofError:
    return ProofError(f"wrong proof for memory space {proof.space!r}: {why}; make it again with lowtide plan")
