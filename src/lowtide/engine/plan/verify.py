"""The verifier: proves a plan correct for a graph, trusting no algorithm that made it."""

from lowtide.core.collection import without_collection
from lowtide.core.errors import FingerprintError, VerificationError
from lowtide.core.index_spaces import StepIndex
from lowtide.engine.graph import Graph
from lowtide.engine.graph.transient import transient_bytes
from lowtide.engine.plan.plan import Plan
from lowtide.engine.plan.steps import StepKind
from lowtide.engine.plan.verify_addresses import verify_addresses
from lowtide.engine.plan.verify_arrays import verify_arrays
from lowtide.engine.plan.verify_at_once import execution_at_once
from lowtide.engine.plan.verify_claims import verify_claims
from lowtide.engine.plan.verify_execution import Peak, execution_by_steps

_Verified = dict[tuple[int, int], dict[str, int]]


@without_collection()
def verify(graph: Graph, plan: Plan, *, check_capacity: bool = True) -> None:
    """Prove that a plan executes the graph's program exactly, with the memory it claims; callees' plans included.

    Raises FingerprintError when the plan was made for another graph, else VerificationError for the first rule that
    a step, a claim or an address breaks. With `check_capacity`, persistent and live bytes together must fit every
    memory space that has a capacity. O(steps + e), and O(k log k) for k addresses.

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
    """Verify one plan after the plans of its callees; returns its peak bytes per memory space name."""
    if plan.graph_fingerprint != graph.fingerprint:
        raise FingerprintError(
            f"the plan was made for a graph with fingerprint {plan.graph_fingerprint[:12]!r}, but graph {graph.name!r} "
            f"has {graph.fingerprint[:12]!r}; make a new plan for this graph"
        )
    verify_arrays(graph, plan)
    callee_peaks = _verify_callees(graph, plan, verified)
    transient = transient_bytes(graph, callee_peaks)
    peaks, residencies = execution_at_once(graph, plan, transient) or execution_by_steps(graph, plan, transient)
    if check_capacity:
        _check_capacity(graph, plan, peaks)
    peak_bytes = {space.name: peak.bytes for space, peak in zip(graph.spaces, peaks, strict=True)}
    verify_claims(plan, graph.n_ops, peak_bytes)
    if plan.addresses:
        verify_addresses(graph, plan, residencies)
    return peak_bytes


def _verify_callees(graph: Graph, plan: Plan, verified: _Verified) -> dict[str, dict[str, int]]:
    """Verify the plans of callees, or their program order where there is none; returns their peaks by name."""
    for name in plan.callees:
        if name not in graph.subgraphs:
            raise VerificationError(
                f"the plan holds a plan for callee {name!r}, which graph {graph.name!r} does not have"
            )
    called = dict.fromkeys(name for names in graph.callees for name in names)
    peaks: dict[str, dict[str, int]] = {}
    for name in {**called, **dict.fromkeys(plan.callees)}:
        callee, callee_plan = graph.subgraphs[name], plan.callees.get(name)
        key = (id(callee), id(callee_plan))  # both stay alive through graph and plan
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
                f"{_where(graph, plan, peak.step)}: memory space {space.name!r} must hold {needed} bytes "
                f"({persistent[space.name]} of them persistent), but has {space.capacity_bytes}; plan for less"
            )


def _where(graph: Graph, plan: Plan, step: StepIndex) -> str:
    if step < 0:
        return "before the first step"
    if plan.kinds[step] == StepKind.RUN:
        return f"step {step}, op {graph.op_names[plan.targets[step]]!r}"
    return f"step {step}, buffer {graph.buffer_names[plan.targets[step]]!r}"
