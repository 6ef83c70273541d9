"""The pipeline: read graph in, verified plan out, never worse than doing nothing."""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from lowtide.analysis.footprint import simulate
from lowtide.analysis.lower_bounds import LowerBound, lower_bounds
from lowtide.analysis.problem import Problem
from lowtide.budget import Budget
from lowtide.effort import DEFAULT_EFFORT, EffortName
from lowtide.errors import UsageError
from lowtide.graph import Graph
from lowtide.packing import pack_plan
from lowtide.plan import Plan, Status, verify
from lowtide.schedule import Candidate, make_candidate, make_candidate_within, scheduler, with_least_arena
from lowtide.search import EFFORTS, Proof, moved_ops, prove
from lowtide.verdict import judge

Means = frozenset[str]
DEFAULT_MEANS: Means = frozenset({"reorder", "share"})
_LATER = frozenset({"recompute", "offload"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """A verified plan and how good it is. Byte figures are per memory space and leave persistent buffers out."""

    plan: Plan
    status: Status
    scheduler: str
    """The order that was chosen, by name; "fit" for one made to fit the budget, "baseline" for the program as it is."""
    moved_ops: int
    """How many ops left their places: those outside a longest common subsequence with the program order."""
    baseline_peak_bytes: Mapping[str, int]
    """Peak of the untouched program."""
    peak_bytes: Mapping[str, int]
    arena_bytes: Mapping[str, int]
    arena_lower_bound_bytes: Mapping[str, int]
    """What no placement of this plan's buffers can beat, as far as it is known."""
    lower_bound_bytes: Mapping[str, int]
    """What no order can beat with the allowed means."""
    proof: Proof | None
    """What shows that no order can beat the bound, for `lowtide.search.check_proof`; None when Ctrl-C came first."""
    persistent_bytes: Mapping[str, int]
    base_cost: float
    """Run time of the program, in the unit of the ops' costs."""
    extra_cost: float
    extra_cost_bound: float
    seconds: float
    """What planning took."""
    shortfall: str | None
    """Why the budget is not met, in one sentence; None when it is, or when there is none."""


def minimize(
    graph: Graph,
    *,
    budget: str | int | None = None,
    allow: Iterable[str] = DEFAULT_MEANS,
    in_place: bool = True,
    scheduler: str | None = None,
    effort: EffortName = DEFAULT_EFFORT,
    progress: Callable[[str], None] | None = None,
) -> Result:
    """Find the plan with the least peak, or one within a budget: the best of all orders, in-place pairs, and addresses.

    `budget` is what the first memory space must hold, persistent buffers included, in bytes ("8 GiB"), or a percentage
    of the baseline's peak ("70%"), persistent buffers not included. With a budget the plan is not the one of least
    peak, but one that fits and moves few ops of the program, none where the program fits as it stands. Where nothing
    fits it is the one of least peak, which `scheduler="search"` asks for in any case.
    `allow` names the means: "reorder" (another order than the given one), "share" (in-place pairs). `scheduler`
    restricts the search to one order by name. `effort` is how much work the search may do: "fast", "balanced" or "max".

    The plan is verified before it is returned. The status is optimal when the peak meets the lower bound, infeasible
    when the bound or a capacity proves that no plan fits, interrupted when Ctrl-C ended the search with the best plan
    so far, else feasible. A plan is returned in every case. Raises UsageError for a bad call.
    """
    started = time.perf_counter()
    report = progress or _silent
    means = _checked_means(allow)
    name = _order_to_try(means, scheduler)
    if effort not in EFFORTS:
        raise UsageError(f"unknown effort {effort!r}; choose one of {', '.join(EFFORTS)}")
    baseline = Plan.baseline(graph)
    baseline_peak = simulate(graph, baseline).peak_bytes
    limit = Budget.parse(budget, graph, baseline_peak)
    use_pairs = in_place and "share" in means

    fit = budget is not None and scheduler is None and name == "search"
    if fit and limit.rank(baseline_peak)[0] == 0:
        name, fit = "given", False
    found = _candidate(graph, name, use_pairs, effort, limit, report, fit=fit)
    if found is None or limit.rank(baseline_peak) <= limit.rank(found.plan.peak_bytes):
        plan, chosen = replace(baseline, peak_bytes=baseline_peak), "baseline"
    else:
        plan, chosen = found.plan, found.scheduler
    interrupted = found is None or found.interrupted
    proven = (found.bounds, found.proof) if found is not None else ((), None)
    try:
        plan, proof, shortfall, arena_bound = _complete(
            graph, plan, limit, use_pairs, effort, proven, interrupted, report
        )
    except KeyboardInterrupt:
        if interrupted:
            raise
        plan, proof, shortfall, arena_bound = _complete(graph, plan, limit, use_pairs, effort, proven, True, report)
    return Result(
        plan=plan,
        status=plan.status,
        scheduler=chosen,
        moved_ops=len(moved_ops(plan.order(), Problem(graph).given_order())),
        baseline_peak_bytes=baseline_peak,
        peak_bytes=plan.peak_bytes,
        arena_bytes=plan.arena_bytes,
        arena_lower_bound_bytes=arena_bound,
        lower_bound_bytes=plan.lower_bound_bytes,
        proof=proof,
        persistent_bytes=graph.persistent_bytes(),
        base_cost=float(graph.cost.sum()),
        extra_cost=0.0,
        extra_cost_bound=0.0,
        seconds=time.perf_counter() - started,
        shortfall=shortfall,
    )


def _silent(_stage: str) -> None:
    pass


def _checked_means(allow: Iterable[str]) -> Means:
    means = frozenset(allow)
    unknown = sorted(means - DEFAULT_MEANS - _LATER)
    if unknown:
        raise UsageError(f"unknown means {unknown[0]!r}; allowed are {', '.join(sorted(DEFAULT_MEANS))}")
    if means & _LATER:
        raise UsageError(f"{sorted(means & _LATER)[0]} is not available in this version; allow reorder and share")
    return means


def _order_to_try(means: Means, name: str | None) -> str:
    if name is not None:
        scheduler(name)  # an unknown name is refused before any work is done
        if "reorder" not in means and name != "given":
            raise UsageError(
                f"order {name!r} is asked for, but reorder is not allowed; allow it, or leave the order out"
            )
        return name
    return "search" if "reorder" in means else "given"


def _candidate(
    graph: Graph,
    name: str,
    in_place: bool,
    effort: EffortName,
    limit: Budget,
    report: Callable[[str], None],
    *,
    fit: bool,
) -> Candidate | None:
    """Return the plan of the named order, or of one that just fits; None when Ctrl-C came before there was any."""
    try:
        report(f"ordering {graph.n_ops} ops ({name})")
        limits = list(limit.allowed.values())
        if fit:
            return make_candidate_within(limits, graph, in_place=in_place, effort=effort, progress=report)
        found = make_candidate(name, graph, in_place=in_place, effort=effort, limits=limits, progress=report)
    except KeyboardInterrupt:
        return None
    return with_least_arena(found)


def _complete(
    graph: Graph,
    plan: Plan,
    limit: Budget,
    in_place: bool,
    effort: EffortName,
    proven: tuple[Sequence[LowerBound], Proof | None],
    interrupted: bool,
    report: Callable[[str], None],
) -> tuple[Plan, Proof | None, str | None, Mapping[str, int]]:
    """Return the plan with addresses, bounds and a status, verified.

    Behind it the proof, why the budget is not met, and the bound of its arena.

    `proven` are bounds known already, with their proof. Finding others can take long: after Ctrl-C none is claimed.
    """
    problem = Problem(graph, plan.callees, in_place=in_place)
    report("placing buffers")
    packing = pack_plan(graph, plan, problem.transient, effort="fast" if interrupted else effort, progress=report)
    interrupted |= packing.interrupted
    bounds, proof = list(proven[0]), proven[1]
    if not bounds and interrupted:
        bounds = [LowerBound(space=space.name, peak_bytes=0, op=None) for space in graph.spaces]
    elif not bounds:
        report("bounding the peak from below")
        bounds = lower_bounds(problem, [problem.given_order(), plan.order()])
        proof = prove(problem, bounds)
    status, shortfall = judge(problem, limit, bounds, proof, plan.peak_bytes)
    plan = plan.with_claims(
        status="interrupted" if interrupted else status,
        peak_bytes=plan.peak_bytes,
        lower_bound_bytes={bound.space: bound.peak_bytes for bound in bounds},
        arena_bytes=packing.arena_bytes,
        addresses=packing.addresses,
    )
    report("verifying the plan")
    verify(graph, plan, check_capacity=False)
    return plan, proof, shortfall, packing.lower_bound_bytes
