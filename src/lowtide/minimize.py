"""The pipeline: read graph in, verified plan out, never worse than doing nothing."""

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from lowtide.analysis.footprint import simulate
from lowtide.analysis.lower_bounds import LowerBound, lower_bounds
from lowtide.analysis.problem import Problem
from lowtide.budget import Budget
from lowtide.errors import UsageError
from lowtide.graph import Graph
from lowtide.pack import pack_plan
from lowtide.plan import Plan, Status, verify
from lowtide.schedule import Candidate, compare_key, make_candidate, scheduler_names

Means = frozenset[str]
DEFAULT_MEANS: Means = frozenset({"reorder", "share"})
_LATER = frozenset({"recompute", "offload"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """A verified plan and how good it is. Byte figures are per memory space and leave persistent buffers out."""

    plan: Plan
    status: Status
    scheduler: str
    """The order that was chosen."""
    baseline_peak_bytes: Mapping[str, int]
    """Peak of the untouched program."""
    peak_bytes: Mapping[str, int]
    arena_bytes: Mapping[str, int]
    lower_bound_bytes: Mapping[str, int]
    """What no order can beat with the allowed means."""
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
    progress: Callable[[str], None] | None = None,
) -> Result:
    """Find the plan with the least peak: the best of all orders, in-place pairs, and addresses.

    `budget` is what the first memory space must hold, persistent buffers included, in bytes ("8 GiB"), or a percentage
    of the baseline's peak ("70%"), persistent buffers not included. `allow` names the means: "reorder" (another order
    than the given one), "share" (in-place pairs). `scheduler` restricts the search to one order by name.

    The plan is verified before it is returned. The status is optimal when the peak meets the lower bound, infeasible
    when the bound or a capacity proves that no plan fits, interrupted when Ctrl-C ended the search with the best plan
    so far, else feasible. A plan is returned in every case. Raises UsageError for a bad call.
    """
    started = time.perf_counter()
    report = progress or _silent
    means = _checked_means(allow)
    baseline = Plan.baseline(graph)
    baseline_peak = simulate(graph, baseline).peak_bytes
    limit = Budget.parse(budget, graph, baseline_peak)
    use_pairs = in_place and "share" in means
    names = ["given"] if "reorder" not in means else [scheduler] if scheduler else scheduler_names()

    best, interrupted = _best_order(graph, names, use_pairs, report)
    if best is None or compare_key(graph, baseline_peak.values()) <= best.key:
        plan, peak, chosen = baseline, baseline_peak, "baseline"
    else:
        plan, peak, chosen = best.plan, best.plan.peak_bytes, best.scheduler
    problem = Problem(graph, plan.callees, in_place=use_pairs)
    report("placing buffers")
    packing = pack_plan(graph, plan, problem.transient)
    report("bounding the peak from below")
    bounds = lower_bounds(problem, [problem.given_order(), plan.order()])
    lower = {bound.space: min(bound.peak_bytes, peak[bound.space]) for bound in bounds}
    status, shortfall = _judge(graph, limit, bounds, peak, lower)
    if interrupted:
        status = "interrupted"
    plan = plan.with_claims(
        status=status,
        peak_bytes=peak,
        lower_bound_bytes=lower,
        arena_bytes=packing.arena_bytes,
        addresses=packing.addresses,
    )
    report("verifying the plan")
    verify(graph, plan, check_capacity=False)
    return Result(
        plan=plan,
        status=status,
        scheduler=chosen,
        baseline_peak_bytes=baseline_peak,
        peak_bytes=peak,
        arena_bytes=packing.arena_bytes,
        lower_bound_bytes=lower,
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


def _best_order(
    graph: Graph, names: Iterable[str], in_place: bool, report: Callable[[str], None]
) -> tuple[Candidate | None, bool]:
    """Return the best of the named orders, the earlier one on a tie, and whether Ctrl-C came before all were tried."""
    best: Candidate | None = None
    try:
        for name in names:
            report(f"ordering {graph.n_ops} ops ({name})")
            candidate = make_candidate(name, graph, in_place=in_place)
            if best is None or candidate.key < best.key:
                best = candidate
    except KeyboardInterrupt:
        return best, True
    return best, False


def _judge(
    graph: Graph, limit: Budget, bounds: Iterable[LowerBound], peak: Mapping[str, int], lower: Mapping[str, int]
) -> tuple[Status, str | None]:
    for bound in bounds:
        most = limit.allowed[bound.space]
        if most is None or peak[bound.space] <= most:
            continue
        if bound.peak_bytes > most:
            who = "inputs and outputs" if bound.op is None else f"op {graph.op_names[bound.op]!r}"
            return "infeasible", (
                f"{who} alone needs {bound.peak_bytes} bytes in {bound.space}, {bound.peak_bytes - most} more than "
                f"the {most} the budget leaves beside persistent buffers"
            )
        return "feasible", (
            f"the best plan found needs {peak[bound.space]} bytes in {bound.space}, {peak[bound.space] - most} more "
            f"than the {most} the budget leaves beside persistent buffers; no proof that none fits"
        )
    return ("optimal" if dict(peak) == dict(lower) else "feasible"), None
