"""What planning found: a verified plan, and how good it is."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from lowtide.core.notebook import html_table
from lowtide.core.units import ByteUnit
from lowtide.engine.analysis.budget import Budget
from lowtide.engine.analysis.shortfall import Shortfall
from lowtide.engine.graph import Graph
from lowtide.engine.overlap import Communication, communication_of
from lowtide.engine.plan import Plan, Status
from lowtide.engine.plan.claim import Claim
from lowtide.engine.planning.draft import Draft
from lowtide.engine.planning.plot import plot_memory
from lowtide.engine.planning.program import FormName
from lowtide.engine.recompute.unrolled import first_runs
from lowtide.engine.search import Proof, Searched, moved_ops, with_flows
from lowtide.engine.timeline import Transfers, transfers_of


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Result:
    """A verified plan and how good it is. Byte figures are per memory space and leave persistent buffers out."""

    graph: Graph
    """The graph that the plan is for."""
    plan: Plan
    budget: Budget
    """What the plan had to stay within, per memory space."""
    status: Status
    """Optimal where a claim for the widest class that the settings allow is met: of the peak, or within a budget of the
    extra cost."""
    scheduler: str
    """The order that was chosen, by name; "fit" for one made to fit the budget, "baseline" for the program as it is,
    "overlap" for that but for its collectives."""
    moved_ops: int
    """How many ops left their places, in called graphs too: those outside a longest common subsequence with the program
    order."""
    baseline_peak_bytes: Mapping[str, int]
    """Peak of the untouched program."""
    peak_bytes: Mapping[str, int]
    arena_bytes: Mapping[str, int]
    """With addresses; empty without."""
    arena_lower_bound_bytes: Mapping[str, int]
    """What no placement of this plan's buffers can beat, as far as it is known."""
    lower_bound_bytes: Mapping[str, int]
    """What no plan of the class can beat that the claim of the peak names."""
    plain_proof: Proof | None
    """The `proof` without flows, and without logs of what a search refuted."""
    solved: Searched | None
    """The search that the proof is of, where one was done."""
    persistent_bytes: Mapping[str, int]
    base_cost: float
    """Run time of the program, in the unit of the ops' costs."""
    extra_cost: float
    """What runs again and what waits for copies, in the same unit."""
    extra_cost_bound: float | None
    """What every plan within the budget costs at least whose first runs follow the base order; None where none fits."""
    base_order: str
    """The order of first runs that this bound holds for, by name."""
    costs: str
    """The profile that priced the ops."""
    reruns: int
    """How many runs are repeated ones."""
    transfers: Transfers
    """What is copied to other memory spaces and back, and what waits for it."""
    communication: Communication
    """What collectives take, and what of that computation does not hide; costs count it as if nothing ran meanwhile."""
    claims: tuple[Claim, ...]
    """What is known of how good the plan is: every bound with the class of plans it holds for. The bounds above are
    the figures of these."""
    seconds: float
    """What planning took."""
    shortfall: Shortfall | None
    """Why the budget is missed; None if it is met or there is none."""
    chunk_cost: float = 0.0
    """What the program in chunks takes beyond the program as it stands, in the unit of the other costs."""
    left_whole: tuple[str, ...] = ()
    """What is computed as a whole though chunks were looked for, and why, a sentence each."""
    to_rounding: bool = False
    """Whether results equal the program's to rounding alone, since chunks make sums in another order."""
    form: FormName = "unmodified"
    """The form of the program that the plan is for."""
    fused_peak_bytes: int | None = None
    """What kernels need in the first memory space once a compiler fused them, where that is known; all else is said of
    the ops."""

    @property
    def proof(self) -> Proof | None:
        """What shows that no order can beat the bound, for `check_proof`; None when Ctrl-C came first.

        Where a search refuted budgets, the first call looks for logs of that, which may take longer than planning did.
        """
        if self.solved is not None:
            return self.solved.logged_proof
        return None if self.plain_proof is None else with_flows(self.plain_proof, self.graph)

    def __repr__(self) -> str:
        """Return the headline; `print(result)` shows it."""
        met = "" if self.shortfall is None else f", {self.shortfall}"
        unit = ByteUnit(self.baseline_peak_bytes)
        before, after = unit.by_space(self.baseline_peak_bytes), unit.by_space(self.peak_bytes)
        fused = "" if self.fused_peak_bytes is None else f", {unit.write(self.fused_peak_bytes)} once fused"
        return f"Result({self.graph.name!r}: {self.status}{met}, peak {before} -> {after}{fused})"

    def _repr_html_(self) -> str:
        unit = ByteUnit(self.baseline_peak_bytes, self.persistent_bytes)
        return html_table(
            f"{self.graph.name}: {self.status}",
            [
                ("baseline peak", unit.by_space(self.baseline_peak_bytes)),
                ("planned peak", unit.by_space(self.peak_bytes)),
                *([("once fused", unit.write(self.fused_peak_bytes))] if self.fused_peak_bytes is not None else []),
                ("lower bound", unit.by_space(self.lower_bound_bytes)),
                *([("arena", unit.by_space(self.arena_bytes))] if self.arena_bytes else []),
                ("persistent", unit.by_space(self.persistent_bytes)),
                ("order", f"{self.scheduler}, {self.moved_ops} of {self.graph.n_ops} ops moved"),
                ("runs again", f"{self.reruns}"),
                ("budget", "met" if self.shortfall is None else str(self.shortfall)),
            ],
        )

    def plot(self, space: str | None = None, axes: Any = None) -> Any:
        """Draw the memory of a space (the first by default) over the runs, before and after, with matplotlib.

        `axes` are matplotlib's; new ones are made by default. Returns them. Raises MissingExtraError without
        matplotlib, UsageError for an unknown space.
        """
        where = self.graph.spaces[0].name if space is None else space
        levels = {"lower bound": self.lower_bound_bytes.get(where), "budget": self.budget.allowed.get(where)}
        drawn = {name: level for name, level in levels.items() if level is not None}
        return plot_memory(self.graph, self.plan, space, drawn, axes)


def result_of(draft: Draft, seconds: float) -> Result:
    """Return what a draft says once it has gone through all stages; planning it took `seconds`."""
    graph, plan, packing = draft.graph, draft.plan, draft.packing
    order = plan.order()
    return Result(
        graph=graph,
        plan=plan,
        budget=draft.budget,
        status=plan.status,
        scheduler=draft.scheduler,
        moved_ops=_moved(graph, plan),
        baseline_peak_bytes=draft.untouched_peak_bytes,
        peak_bytes=plan.peak_bytes,
        arena_bytes=plan.arena_bytes,
        arena_lower_bound_bytes=plan.peak_bytes if packing is None else packing.lower_bound_bytes,
        lower_bound_bytes=plan.lower_bound_bytes,
        plain_proof=draft.proof,
        solved=draft.solved,
        persistent_bytes=graph.persistent_bytes(),
        base_cost=float(draft.prices.seconds.sum()),
        extra_cost=draft.extra_cost,
        extra_cost_bound=draft.extra_cost_bound,
        base_order=draft.base_order or draft.scheduler,
        costs=draft.prices.profile,
        reruns=len(order) - graph.n_ops,
        transfers=transfers_of(graph, plan, draft.prices),
        communication=communication_of(graph, plan, draft.prices),
        claims=plan.claims,
        seconds=seconds,
        shortfall=draft.shortfall,
    )


def _moved(graph: Graph, plan: Plan) -> int:
    own = len(moved_ops(first_runs(plan.order().tolist()), np.arange(graph.n_ops, dtype=np.int32)))
    return own + sum(_moved(graph.subgraphs[name], callee) for name, callee in plan.callees.items())
