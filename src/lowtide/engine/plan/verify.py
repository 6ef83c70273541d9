"""The verifier, independent of planning algorithms."""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from lowtide.core.collection import without_collection
from lowtide.core.errors import FingerprintError, VerificationError
from lowtide.core.index_spaces import StepIndex
from lowtide.engine.graph import Graph
from lowtide.engine.graph.execution import transient_bytes
from lowtide.engine.plan.claim import Claim, strongest
from lowtide.engine.plan.plan import HOME, Plan, StepKind
from lowtide.engine.plan.verify_addresses import verify_addresses
from lowtide.engine.plan.verify_execution import Peak, verify_execution

_Verified = dict[tuple[int, int], dict[str, int]]


@without_collection()
def verify(graph: Graph, plan: Plan, *, check_capacity: bool = True) -> None:
    """Check that a plan executes the program of a graph exactly, with the memory it claims.

    Raises FingerprintError for another graph, VerificationError for the first violated rule. Includes callees. With
    `check_capacity`, persistent and live bytes must fit every memory space. O((steps + e) log e) plus O(k log k) for k
    addresses.

    >>> import lowtide
    >>> empty, builder = lowtide.GraphBuilder("empty").build(), lowtide.GraphBuilder("a buffer")
    >>> x = builder.add_buffer("x", 1024, lowtide.Lifetime.INPUT)
    >>> plan = lowtide.minimize(empty).plan
    >>> lowtide.verify(empty, plan)
    >>> lowtide.verify(builder.build(), plan)
    Traceback (most recent call last):
    lowtide.core.errors.FingerprintError: the plan was made for a graph with fingerprint ...
    """
    _verify(graph, plan, check_capacity, {})


def _verify(graph: Graph, plan: Plan, check_capacity: bool, verified: _Verified) -> dict[str, int]:
    if plan.graph_fingerprint != graph.fingerprint:
        raise FingerprintError(
            f"the plan was made for a graph with fingerprint {plan.graph_fingerprint[:12]!r}, but graph {graph.name!r} "
            f"has {graph.fingerprint[:12]!r}; make a new plan for this graph"
        )
    _check_arrays(graph, plan)
    callee_peaks = _verify_callees(graph, plan, verified)
    transient = transient_bytes(graph, callee_peaks)
    peaks, residencies = verify_execution(graph, plan, transient)
    if check_capacity:
        _check_capacity(graph, plan, peaks)
    peak_bytes = {space.name: peak.bytes for space, peak in zip(graph.spaces, peaks, strict=True)}
    _check_claims(plan, graph.n_ops, peak_bytes)
    if plan.addresses:
        verify_addresses(graph, plan, residencies)
    return peak_bytes


def _check_arrays(graph: Graph, plan: Plan) -> None:
    lengths = {len(plan.kinds), len(plan.targets), len(plan.spaces), len(plan.pairs)}
    if len(lengths) != 1:
        raise VerificationError(f"the plan's arrays have lengths {sorted(lengths)}; every step needs one entry in each")
    kinds, targets, spaces = plan.kinds, plan.targets, plan.spaces
    runs = kinds == StepKind.RUN
    copies = (kinds == StepKind.COPY_OUT) | (kinds == StepKind.COPY_IN)
    _reject(kinds > max(StepKind), "has an unknown kind; a step is a run, a free, a copy out or a copy in")
    _reject(runs & ((targets < 0) | (targets >= graph.n_ops)), f"runs an op outside of the {graph.n_ops}")
    _reject(
        ~runs & ((targets < 0) | (targets >= graph.n_buffers)),
        f"names a buffer outside of the {graph.n_buffers} buffers",
    )
    _reject(
        (spaces < HOME) | (spaces >= len(graph.spaces)),
        f"names a memory space outside of the {len(graph.spaces)}",
    )
    _reject(runs & (spaces != HOME), "runs an op in a memory space; only frees and copies name one")
    _reject(copies & (spaces == HOME), "copies without naming the other memory space")
    counts = np.diff(plan.pairs.offsets)
    ends = plan.pairs.offsets[[0, -1]]
    if (counts < 0).any() or ends[0] != 0 or ends[1] != len(plan.pairs.values):
        raise VerificationError("the plan's in-place pairs are not valid rows; build them with `Rows.from_lists`")
    _reject((counts > 0) & ~runs, "uses in-place pairs, but runs no op")
    _reject(counts % 2 == 1, "has half an in-place pair; give a read and a written buffer each")
    wrong = (plan.pairs.values < 0) | (plan.pairs.values >= graph.n_buffers)
    if wrong.any():
        step = int(plan.pairs.owners()[wrong.argmax()])
        raise VerificationError(
            f"step {step} uses an in-place pair with a buffer outside of the {graph.n_buffers} buffers"
        )


def _reject(wrong: NDArray[np.bool_], reason: str) -> None:
    if wrong.any():
        raise VerificationError(f"step {int(wrong.argmax())} {reason}")


def _verify_callees(graph: Graph, plan: Plan, verified: _Verified) -> dict[str, dict[str, int]]:
    for name in plan.callees:
        if name not in graph.subgraphs:
            raise VerificationError(f"there is a plan for callee {name!r}, which graph {graph.name!r} does not have")
    peaks: dict[str, dict[str, int]] = {}
    for name in dict.fromkeys([*graph.called, *plan.callees]):
        callee, callee_plan = graph.subgraphs[name], plan.callees.get(name)
        key = (id(callee), id(callee_plan))  # unique while both are alive
        if key not in verified:
            try:
                verified[key] = _verify(callee, callee_plan or Plan.baseline(callee), False, verified)
            except FingerprintError as error:
                raise FingerprintError(f"callee {name!r}: {error}") from None
            except VerificationError as error:
                raise VerificationError(f"callee {name!r}: {error}") from None
        peaks[name] = verified[key]
    return peaks


def _check_capacity(graph: Graph, plan: Plan, peaks: list[Peak]) -> None:
    persistent = graph.persistent_bytes()
    for space, peak in zip(graph.spaces, peaks, strict=True):
        needed = persistent[space.name] + peak.bytes
        if space.capacity_bytes is not None and needed > space.capacity_bytes:
            raise VerificationError(
                f"{_where(graph, plan, peak.step)}: memory space {space.name!r} needs {needed} bytes "
                f"({persistent[space.name]} persistent), but has {space.capacity_bytes}; plan for less"
            )


def _where(graph: Graph, plan: Plan, step: StepIndex) -> str:
    if step < 0:
        return "before the first step"
    if plan.kinds[step] == StepKind.RUN:
        return f"step {step}, op {graph.op_names[plan.targets[step]]!r}"
    return f"step {step}, buffer {graph.buffer_names[plan.targets[step]]!r}"


def _check_claims(plan: Plan, n_ops: int, peak_bytes: Mapping[str, int]) -> None:
    """Check that claims agree with the peak and one another. O(steps + claims)."""
    _check_figures(plan, peak_bytes)
    for claim in plan.claims:
        _check_claim(plan, claim, n_ops, peak_bytes)
    bounds = {space: least for space, least in plan.lower_bound_bytes.items() if least}
    claimed = strongest(plan.claims)
    if plan.claims and bounds != claimed:
        raise VerificationError(f"the plan has lower_bound_bytes {bounds}, but claims {claimed}; correct one")
    is_priced = any(claim.figure == "extra cost" for claim in plan.claims)
    if plan.status == "optimal" and not is_priced:
        own = strongest(claim for claim in plan.claims if is_of_class(plan, claim, n_ops)) if plan.claims else bounds
        for space, peak in peak_bytes.items():
            bound = own.get(space, 0)
            if bound != peak:
                raise VerificationError(
                    f"the plan has status optimal, but needs {peak} bytes in memory space {space!r}, and its claims "
                    f"show only {bound}; set the status to feasible"
                )


def is_of_class(plan: Plan, claim: Claim, n_ops: int) -> bool:
    return claim.holds_for(
        reruns=int((plan.kinds == StepKind.RUN).sum()) > n_ops,
        copies=bool((plan.kinds == StepKind.COPY_OUT).any()),
        pairs=len(plan.pairs.values) > 0,
    )


def _check_figures(plan: Plan, peak_bytes: Mapping[str, int]) -> None:
    peaks, bounds, arenas = plan.peak_bytes, plan.lower_bound_bytes, plan.arena_bytes
    for name, claimed in (("peak_bytes", peaks), ("lower_bound_bytes", bounds), ("arena_bytes", arenas)):
        for space in claimed:
            if space not in peak_bytes:
                raise VerificationError(f"the plan claims {name} for {space!r}, which is not one of the memory spaces")
    for space, peak in peak_bytes.items():
        wrong: str | None = None
        if peaks.get(space, peak) != peak:
            wrong = f"peak_bytes {peaks[space]}"
        elif bounds.get(space, peak) > peak:
            wrong = f"lower_bound_bytes {bounds[space]}"
        elif arenas.get(space, peak) < peak:
            wrong = f"arena_bytes {arenas[space]}"
        if wrong:
            raise VerificationError(
                f"the plan claims {wrong} in memory space {space!r}, but its steps reach a peak of {peak}; "
                "correct the claim"
            )


def _check_claim(plan: Plan, claim: Claim, n_ops: int, peak_bytes: Mapping[str, int]) -> None:
    if not claim.makes_sense:
        raise VerificationError(
            f"the plan claims a bound of {claim.figure} over {claim.over}, shown by {claim.shown_by}, with space "
            f"{claim.space!r} and base order {claim.base_order!r}; no such claim exists, remove it"
        )
    if claim.figure == "extra cost":
        return
    if claim.space is None or claim.space not in peak_bytes:
        raise VerificationError(f"the plan has a claim for {claim.space!r}, which is not a memory space of the graph")
    peak = peak_bytes[claim.space]
    figure = peak if claim.figure == "peak" else plan.arena_bytes.get(claim.space, peak)
    if claim.at_least > figure and is_of_class(plan, claim, n_ops):
        raise VerificationError(
            f"the plan claims that {claim.sentence} than {claim.at_least} bytes of {claim.figure} in memory space "
            f"{claim.space!r}, but needs {figure} itself; correct the claim"
        )
