"""Re-checks a proof without any of the code that found it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lowtide.core.errors import FingerprintError, ProofError
from lowtide.core.index_spaces import OpId
from lowtide.engine.graph import Graph
from lowtide.engine.graph.execution import transient_bytes
from lowtide.engine.search.check_cut import cut_of, is_closed_before, least_needed, needed_after
from lowtide.engine.search.check_flow import least_by_flow
from lowtide.engine.search.check_refutation import is_refuted
from lowtide.engine.search.plain_fit import PlainFit, plain_fit
from lowtide.engine.search.plain_max_flow import TooMuchWorkError
from lowtide.engine.search.plain_program import PlainProgram
from lowtide.engine.search.plain_series_parallel import plain_series_parallel_peak
from lowtide.engine.search.plain_tree import plain_tree_peak
from lowtide.engine.search.proof import Proof, SpaceProof

MOST_LOOKS = 3_000_000
"""How many looks at an op the check of one budget may take: some seconds in plain Python."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedBound:
    """What a check could confirm for one memory space."""

    space: str
    confirmed_bytes: int
    """The bound as far as it was re-checked: what cut or tree show, and the largest budget that was refuted again."""
    not_rechecked: tuple[int, ...]
    """Bounds above it that would take too much work in plain Python, in bytes: a search, or a flow in a large graph."""


def check_proof(graph: Graph, proof: Proof, *, most_looks: int = MOST_LOOKS) -> Sequence[CheckedBound]:
    """Confirm a proof for a graph, memory space by memory space.

    A cut is confirmed by adding up its buffers and by the flow in the proof; without one by a maximum flow of its own.
    The least peak of a tree or of a series-parallel graph is found again in plain Python. A refuted budget is confirmed
    by replaying its log; without one by trying all orders, unless that takes more than `most_looks` looks at an op.
    Own flows end at a limit of work, too; what is not confirmed for that is listed. What is called is confirmed once,
    however many call it. Raises ProofError for a proof that does not show what it claims, FingerprintError for the
    proof of another graph.
    Complexity: O(e log e) on arrays per space; one flow per line of a log in plain Python (well below a second each for
    a thousand ops), plus the looks.
    """
    return _check(graph, proof, proof.callees, most_looks, {})


def _check(
    graph: Graph,
    proof: Proof,
    callees: Mapping[str, Proof],
    most_looks: int,
    checked: dict[str, Sequence[CheckedBound]],
) -> Sequence[CheckedBound]:
    if proof.graph != graph.fingerprint:
        raise FingerprintError(f"the proof is not for graph {graph.name!r}; make one for it with lowtide plan")
    if [space.space for space in proof.spaces] != [space.name for space in graph.spaces]:
        raise ProofError("the proof names other memory spaces than the graph; make it again with lowtide plan")
    for name in graph.called:
        inner = callees.get(name)
        if inner is None or inner.in_place != proof.in_place:
            raise ProofError(f"the proof has none for graph {name!r}, which an op calls; make it again")
        if name not in checked:
            checked[name] = _check(graph.subgraphs[name], inner, callees, most_looks, checked)
    confirmed = {name: {bound.space: bound.confirmed_bytes for bound in checked[name]} for name in graph.called}
    transient = transient_bytes(graph, confirmed)
    return [
        _check_space(graph, transient, proof.in_place, position, space, most_looks)
        for position, space in enumerate(proof.spaces)
    ]


def _check_space(
    graph: Graph, transient: NDArray[np.int64], in_place: bool, position: int, proof: SpaceProof, most_looks: int
) -> CheckedBound:
    program = PlainProgram(graph, transient, in_place, position)
    confirmed, not_rechecked = _check_cut(program, proof), list[int]()
    if confirmed < proof.cut_bytes:
        not_rechecked.append(proof.cut_bytes)
    confirmed = max(confirmed, proof.tree_bytes or 0)
    if proof.tree_bytes is not None and proof.tree_bytes != _settled_peak(program):
        raise _wrong(
            proof, f"the graph is no tree with a least peak of {proof.tree_bytes} bytes, nor series-parallel with one"
        )
    figures = [proof.cut_bytes, proof.tree_bytes or 0, *(budget.at_least_bytes for budget in proof.refuted)]
    if proof.bound_bytes != max(figures):
        raise _wrong(proof, f"its steps show {max(figures)} bytes, not the {proof.bound_bytes} it claims")
    for budget in sorted(proof.refuted, key=lambda budget: -budget.at_least_bytes):
        if budget.at_least_bytes <= confirmed:
            break  # shown already
        if budget.log:
            try:
                shown = is_refuted(program, budget.at_least_bytes - 1, budget.log)
            except TooMuchWorkError:
                not_rechecked.append(budget.at_least_bytes)
                continue
            if not shown:
                raise _wrong(proof, f"its log does not show that every order needs {budget.at_least_bytes} bytes")
            confirmed = budget.at_least_bytes
            continue
        outcome = plain_fit(program, budget.at_least_bytes - 1, most_looks)
        if outcome == PlainFit.SOME_ORDER_FITS:
            raise _wrong(proof, f"some order needs less than the {budget.at_least_bytes} bytes it claims")
        if outcome == PlainFit.NO_ORDER_FITS:
            confirmed = budget.at_least_bytes
        else:
            not_rechecked.append(budget.at_least_bytes)
    above = tuple(least for least in not_rechecked if least > confirmed)
    return CheckedBound(space=proof.space, confirmed_bytes=confirmed, not_rechecked=above)


def _settled_peak(program: PlainProgram) -> int | None:
    """Return the least peak of a tree or of a series-parallel graph, None for others."""
    peak = plain_tree_peak(program)
    return plain_series_parallel_peak(program) if peak is None else peak


def _check_cut(program: PlainProgram, proof: SpaceProof) -> int:
    """Return the bytes that the cut shows; what inputs and outputs need, where its flow would take too much work."""
    if proof.op is None:
        if proof.before or proof.flow is not None or proof.cut_bytes != program.at_the_edges():
            raise _wrong(proof, f"inputs and outputs alone need {program.at_the_edges()} bytes, no more and no less")
        return proof.cut_bytes
    before = _mask(program.n_ops, proof.before)
    if proof.op >= program.n_ops or before is None or not is_closed_before(program, proof.op, before):
        raise _wrong(proof, f"op {proof.op} cannot run when exactly the ops it names have run")
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
        raise _wrong(proof, f"the flow to op {proof.op} is none")
    if not proof.cut_bytes == needed == least:
        raise _wrong(
            proof, f"op {proof.op} needs {needed} bytes after the ops it names and at least {least} in any order"
        )
    return proof.cut_bytes if is_checked else min(proof.cut_bytes, program.at_the_edges())


def _mask(n_ops: int, ops: Sequence[OpId]) -> NDArray[np.bool_] | None:
    """Return a mask of some ops, None where there are fewer ops."""
    mask = np.zeros(n_ops, np.bool_)
    named = np.fromiter(ops, np.int64, len(ops))
    if (named >= n_ops).any():
        return None
    mask[named] = True
    return mask


def _wrong(proof: SpaceProof, why: str) -> ProofError:
    return ProofError(f"wrong proof for memory space {proof.space!r}: {why}; make it again with lowtide plan")
