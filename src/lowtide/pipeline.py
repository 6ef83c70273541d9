"""The pipeline: read graph in, verified plan out, never worse than doing nothing."""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from lowtide.analysis.footprint import simulate
from lowtide.analysis.lower_bounds import LowerBound, lower_bounds
from lowtide.analysis.problem import Problem
from lowtide.budget import Budget
from lowtide.costs import Prices, ProfileName, price
from lowtide.effort import DEFAULT_EFFORT, EffortName
from lowtide.errors import UsageError
from lowtide.graph import Graph
from lowtide.offload import find_link
from lowtide.packing import Packing, pack_plan
from lowtide.plan import Plan, Status, verify
from lowtide.recompute.unrolled import first_runs
from lowtide.schedule import Candidate, make_candidate, make_candidate_within, scheduler, with_least_arena
from lowtide.search import EFFORTS, Proof, moved_ops, prove
from lowtide.timeline import Transfers, transfers_of
from lowtide.trade import bounds_with_reruns, trade_time
from lowtide.verdict import Verdict, judge

Means = frozenset[str]
DEFAULT_MEANS: Means = frozenset({"reorder", "share"})
_FOR_TIME = frozenset({"recompute", "offload"})
"""Means that cost time, and so are used for a budget only."""


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
    """What runs again and what waits for copies, in the same unit."""
    extra_cost_bound: float | None
    """No plan within the budget costs less extra that runs the ops for the first time in the base order; None where
    none fits with that order."""
    base_order: str
    """The order that this bound holds for, by name."""
    costs: str
    """The profile that priced the ops."""
    reruns: int
    """How many runs are repeated ones."""
    transfers: Transfers
    """What is copied to other memory spaces and back, and what waits for it."""
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
    costs: ProfileName | Prices = "given",
    effort: EffortName = DEFAULT_EFFORT,
    untouched: Graph | None = None,
    progress: Callable[[str], None] | None = None,
) -> Result:
    """Find the plan with the least peak, or one within a budget: the best of all orders, in-place pairs, and addresses.

    `budget` is what the first memory space must hold, persistent buffers included, in bytes ("8 GiB"), or a percentage
    of the baseline's peak ("70%"), persistent buffers not included. With a budget the plan is not the one of least
    peak, but one that fits and moves few ops of the program, none where the program fits as it stands. Where nothing
    fits it is the one of least peak, which `scheduler="search"` asks for in any case.
    `allow` names the means: "reorder" (another order than the given one), "share" (in-place pairs), "recompute" (ops
    may run again, at the least extra cost, where no order fits the budget; see `recompute.compose`), "offload" (buffers
    may visit a memory space that the first one has bandwidth to and from). `scheduler`
    restricts the search to one order by name. `costs` says what ops cost: the graph's own figures ("given"), a profile
    ("eager", "fused"), or prices read from a costs file. `effort` is how much work the search may do: "fast",
    "balanced" or "max". `untouched` is the program as it stands, where the graph is another way to compute the same:
    percentages and the baseline's peak are that program's.

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
    untouched_peak = baseline_peak if untouched is None else simulate(untouched, Plan.baseline(untouched)).peak_bytes
    limit = Budget.parse(budget, graph, untouched_peak)
    if means & _FOR_TIME and all(most is None for most in limit.allowed.values()):
        raise UsageError(f"{sorted(means & _FOR_TIME)[0]} trades time for a budget; give a budget, or leave it out")
    if "offload" in means and find_link(graph, 0) is None:
        raise UsageError(
            f"offload needs a memory space to copy to and from; give one of graph {graph.name!r} a bandwidth both "
            "ways, by --host-bandwidth or lowtide.offload.with_host_space"
        )
    prices = costs if isinstance(costs, Prices) else price(graph, costs)
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
    traded = None
    if means & _FOR_TIME and not interrupted and limit.rank(plan.peak_bytes)[0] > 0:
        try:
            traded = trade_time(
                graph,
                plan,
                chosen,
                limit,
                prices,
                means=means,
                reorder="reorder" in means and scheduler is None,
                in_place=use_pairs,
                effort=effort,
                report=report,
            )
        except KeyboardInterrupt:
            interrupted = True
    extra_cost = 0.0
    if traded is not None and limit.rank(traded.peak_bytes) < limit.rank(plan.peak_bytes):
        plan, extra_cost = replace(traded.plan, peak_bytes=traded.peak_bytes), traded.extra_cost
    problem = Problem(graph, plan.callees, in_place=use_pairs)
    if traded is not None:
        verdict = Verdict(bounds=traded.bounds, status=traded.status, shortfall=traded.shortfall)
    elif means & _FOR_TIME:
        verdict = judge(problem, limit, bounds_with_reruns(problem), None, plan.peak_bytes)
    else:
        known = None if found is None or not found.bounds else (found.bounds, found.proof)
        verdict = _judge_order(problem, plan, limit, known, interrupted, report)
    try:
        plan, packing = _complete(graph, plan, problem, verdict, interrupted, effort, report)
    except KeyboardInterrupt:
        if interrupted:
            raise
        plan, packing = _complete(graph, plan, problem, verdict, True, effort, report)
    order = first_runs(plan.order().tolist())
    return Result(
        plan=plan,
        status=plan.status,
        scheduler=chosen,
        moved_ops=len(moved_ops(order, problem.given_order())),
        baseline_peak_bytes=untouched_peak,
        peak_bytes=plan.peak_bytes,
        arena_bytes=plan.arena_bytes,
        arena_lower_bound_bytes=packing.lower_bound_bytes,
        lower_bound_bytes=plan.lower_bound_bytes,
        proof=verdict.proof,
        persistent_bytes=graph.persistent_bytes(),
        base_cost=float(prices.seconds.sum()),
        extra_cost=extra_cost,
        extra_cost_bound=0.0 if traded is None else traded.extra_cost_bound,
        base_order=chosen if traded is None else traded.base_order,
        costs=prices.profile,
        reruns=len(plan.order()) - graph.n_ops,
        transfers=transfers_of(graph, plan, prices),
        seconds=time.perf_counter() - started,
        shortfall=verdict.shortfall,
    )


def _silent(_stage: str) -> None:
    pass


def _checked_means(allow: Iterable[str]) -> Means:
    means = frozenset(allow)
    unknown = sorted(means - DEFAULT_MEANS - _FOR_TIME)
    if unknown:
        raise UsageError(f"unknown means {unknown[0]!r}; allowed are {', '.join(sorted(DEFAULT_MEANS | _FOR_TIME))}")
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


def _judge_order(
    problem: Problem,
    plan: Plan,
    limit: Budget,
    known: tuple[Sequence[LowerBound], Proof | None] | None,
    interrupted: bool,
    report: Callable[[str], None],
) -> Verdict:
    """Return what a plan that runs every op once is worth.

    `known` are bounds with their proof. Finding others can take long: after Ctrl-C none is claimed.
    """
    if known is not None:
        bounds, proof = known
    elif interrupted:
        bounds, proof = [LowerBound(space=space.name, peak_bytes=0, op=None) for space in problem.graph.spaces], None
    else:
        report("bounding the peak from below")
        bounds = lower_bounds(problem, [problem.given_order(), plan.order()])
        proof = prove(problem, bounds)
    return judge(problem, limit, bounds, proof, plan.peak_bytes)


def _complete(
    graph: Graph,
    plan: Plan,
    problem: Problem,
    verdict: Verdict,
    interrupted: bool,
    effort: EffortName,
    report: Callable[[str], None],
) -> tuple[Plan, Packing]:
    """Return the plan with addresses and claims, verified."""
    report("placing buffers")
    packing = pack_plan(graph, plan, problem.transient, effort="fast" if interrupted else effort, progress=report)
    plan = plan.with_claims(
        status="interrupted" if interrupted or packing.interrupted else verdict.status,
        peak_bytes=plan.peak_bytes,
        lower_bound_bytes={bound.space: bound.peak_bytes for bound in verdict.bounds},
        arena_bytes=packing.arena_bytes,
        addresses=packing.addresses,
    )
    report("verifying the plan")
    verify(graph, plan, check_capacity=False)
    return plan, packing
