"""The result of planning."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np

from lowtide.core.errors import MissingExtraError, UsageError, one_line, unknown
from lowtide.core.memory_picture import MemoryPicture
from lowtide.core.units import format_by_space
from lowtide.engine.analysis.budget import Budget, Shortfall
from lowtide.engine.analysis.memory_over_time import PARTS, MemoryOverTime, memory_over_time, runs_per_column
from lowtide.engine.analysis.memory_picture import memory_picture
from lowtide.engine.graph import Graph
from lowtide.engine.offload.host_space import HOST
from lowtide.engine.offload.updates import LEAST_BYTES
from lowtide.engine.offload.within_budget import prove_cost
from lowtide.engine.overlap import Communication, communication_of
from lowtide.engine.plan import Plan, Status
from lowtide.engine.plan.claim import Claim
from lowtide.engine.planning.draft import Draft
from lowtide.engine.planning.program import FormName
from lowtide.engine.recompute.prove_cost import ProvableCost
from lowtide.engine.recompute.unrolled import first_runs
from lowtide.engine.search import Proof, Searched, moved_ops, with_flows
from lowtide.engine.timeline import Transfers, transfers_of

_MOST_COLUMNS = 4096
_MIB = 2**20


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Result:
    """A verified plan with its cost and bounds. Bytes are per memory space, without persistent buffers."""

    graph: Graph
    """The graph that the plan is for."""
    unmodified: Graph
    """The unmodified program; `graph` may be another form."""
    plan: Plan
    budget: Budget
    """Limits per memory space."""
    status: Status
    """Optimal if no plan that the settings allow has a lower peak or, within a budget, costs less."""
    scheduler: str
    """The order by name: "fit" if made for the budget, "baseline" for program order, "overlap" for program order with
    moved collectives."""
    moved_ops: int
    """Ops outside a longest common subsequence with program order, called graphs included."""
    baseline_peak_bytes: Mapping[str, int]
    """Peak of the unmodified program."""
    peak_bytes: Mapping[str, int]
    arena_bytes: Mapping[str, int]
    """Bytes reserved for buffers with addresses; empty without addresses."""
    arena_lower_bound_bytes: Mapping[str, int]
    """Lower bound over all placements of this plan's buffers."""
    lower_bound_bytes: Mapping[str, int]
    """Lower bound of the peak for the class of plans named by its claim."""
    plain_proof: Proof | None
    """The `proof` without flows and logs of refuted budgets."""
    solved: Searched | None
    """The search behind the proof, if any."""
    persistent_bytes: Mapping[str, int]
    base_cost: float
    """Run time in the unit of the ops' costs."""
    extra_cost: float
    """Cost of recomputed runs and of waiting for copies."""
    extra_cost_bound: float | None
    """Lower bound within the budget for first runs in the base order; None if no plan fits."""
    solver_bound: float | None
    """The solver's unproven higher bound."""
    solver_finds_none: bool
    """Whether the solver finds, without proof, that no plan with this base order fits."""
    provable_cost: ProvableCost | None
    """The bound of the extra cost with its proof."""
    base_order: str
    """The order of first runs, by name."""
    costs: str
    """The profile that priced the ops."""
    reruns: int
    """Recomputed runs, without repeated copies of parameters from the host."""
    transfers: Transfers
    """Copies to other memory spaces and back, and the time that ops wait for them."""
    communication: Communication
    """Time of collectives, and the part not hidden by computation. Costs count all of it."""
    claims: tuple[Claim, ...]
    """All bounds, each with its class of plans."""
    seconds: float
    """Time of planning."""
    shortfall: Shortfall | None
    """Why the budget is missed, or None."""
    chunk_cost: float = 0.0
    """Time that chunks add to the unmodified program."""
    moved_cost: float = 0.0
    """Time of updates moved to the host; not part of `base_cost`."""
    left_whole: tuple[str, ...] = ()
    """One sentence for each large result that chunking skipped, with the reason."""
    to_rounding: bool = False
    """Whether results are only equal up to rounding: chunks reorder sums, or updates run on the host."""
    form: FormName = "unmodified"
    """The form of the program that is planned."""

    @property
    def proof(self) -> Proof | None:
        """The proof of the lower bound of the peak or the extra cost, for `check_certificate`.

        If a search refuted budgets, the first access records its logs, which may take longer than planning.
        """
        if self.solved is not None:
            return self.solved.logged_proof
        if self.plain_proof is not None:
            return with_flows(self.plain_proof, self.graph)
        cost = None if self.provable_cost is None else prove_cost(self.provable_cost, self.graph)
        if self.provable_cost is None or cost is None:
            return None
        return Proof(graph=self.graph.fingerprint, in_place=self.provable_cost.in_place, spaces=(), cost=cost)

    @property
    def state_on_host_bytes(self) -> int:
        """Bytes of persistent buffers that live on the host."""
        return self.persistent_bytes.get(HOST, 0)

    @property
    def parameters_on_host_bytes(self) -> int:
        """Bytes of parameters among these, which a plan may copy to the device several times."""
        graph = self.graph
        copied = graph.reads.take(np.flatnonzero(graph.copies_parameters).astype(np.int32)).values
        return int(graph.sizes[np.unique(copied)].sum())

    @property
    def updated_on_host_bytes(self) -> int:
        """Bytes of state and parameters on the host that are updated there."""
        graph = self.graph
        changed = graph.mutates.take(np.flatnonzero(graph.updates_on_host).astype(np.int32)).values
        on_host = graph.persistent & (graph.buffer_spaces > 0) & (graph.sizes >= LEAST_BYTES)
        return int(graph.sizes[changed[on_host[changed]]].sum())

    @property
    def unmodified_cost(self) -> float:
        """Run time of the unmodified program."""
        return self.base_cost - self.chunk_cost + self.moved_cost

    @property
    def extra_time(self) -> float:
        """Time added to the unmodified program, as a share; updates on the host may make it negative."""
        extra = self.chunk_cost + self.extra_cost - self.moved_cost
        return extra / self.unmodified_cost if self.unmodified_cost else 0.0

    def __repr__(self) -> str:
        met = "" if self.shortfall is None else f", {self.shortfall}"
        before, after = format_by_space(self.baseline_peak_bytes), format_by_space(self.peak_bytes)
        return f"Result({self.graph.name!r}: {self.status}{met}, peak {before} -> {after})"

    def _repr_html_(self) -> str:
        rows = [
            ("status", self.status),
            ("baseline peak", format_by_space(self.baseline_peak_bytes)),
            ("planned peak", format_by_space(self.peak_bytes)),
            ("lower bound", format_by_space(self.lower_bound_bytes)),
            *([("arena", format_by_space(self.arena_bytes))] if self.arena_bytes else []),
            ("persistent", format_by_space(self.persistent_bytes)),
            ("order", f"{self.scheduler}, {self.moved_ops} of {self.graph.n_ops} ops moved"),
            ("recomputed", f"{self.reruns} runs"),
            ("budget", "met" if self.shortfall is None else str(self.shortfall)),
        ]
        return self.picture().html(rows)

    def picture(self) -> MemoryPicture:
        """Return the first memory space's memory before and after the plan."""
        budget = self.budget.allowed.get(self.graph.spaces[0].name)
        return memory_picture(self.graph, self.plan, unmodified=self.unmodified, budget_bytes=budget)

    def plot(self, space: str | None = None, axes: Any = None) -> Any:
        """Draw the memory of a space over the runs, with and without the plan, by matplotlib.

        `space` is the first by default. Returns `axes`, new by default. Raises MissingExtraError without matplotlib,
        UsageError for an unknown space.
        """
        where = self.graph.spaces[0].name if space is None else space
        levels = {"lower bound": self.lower_bound_bytes.get(where), "budget": self.budget.allowed.get(where)}
        drawn = {name: level for name, level in levels.items() if level is not None}
        return plot_memory(self.graph, self.plan, self.unmodified, space, drawn, axes)


def result_of(draft: Draft, seconds: float) -> Result:
    graph, plan, packing = draft.graph, draft.plan, draft.packing
    order = plan.order()
    return Result(
        graph=graph,
        unmodified=draft.unmodified,
        plan=plan,
        budget=draft.budget,
        status=plan.status,
        scheduler=draft.scheduler,
        moved_ops=_moved(graph, plan),
        baseline_peak_bytes=draft.unmodified_peak_bytes,
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
        solver_bound=None if draft.solver_bound == math.inf else draft.solver_bound,
        solver_finds_none=draft.solver_bound == math.inf,
        provable_cost=draft.provable_cost,
        base_order=draft.base_order or draft.scheduler,
        costs=draft.prices.profile,
        reruns=int((~graph.off_device[order]).sum() - (~graph.off_device).sum()),
        transfers=transfers_of(graph, plan, draft.prices),
        communication=communication_of(graph, plan, draft.prices),
        claims=plan.claims,
        seconds=seconds,
        shortfall=draft.shortfall,
    )


def _moved(graph: Graph, plan: Plan) -> int:
    own = len(moved_ops(first_runs(plan.order().tolist()), np.arange(graph.n_ops, dtype=np.int32)))
    return own + sum(_moved(graph.subgraphs[name], callee) for name, callee in plan.callees.items())


def plot_memory(
    graph: Graph, plan: Plan, unmodified: Graph, space: str | None, levels: dict[str, int], axes: Any = None
) -> Any:
    """Draw memory stacked by kind of buffer, with the unmodified program and `levels` as lines; see `Result.plot`."""
    names = [each.name for each in graph.spaces]
    if space is not None and space not in names:
        raise UsageError(unknown("memory space", space, names))
    position = 0 if space is None else names.index(space)
    if axes is None:
        axes = _pyplot().subplots(figsize=(10, 4), layout="constrained")[1]
    grain = runs_per_column(max(unmodified.n_ops, len(plan.order())), _MOST_COLUMNS)
    after = memory_over_time(graph, plan, position, grain)
    shown = [part for part in range(len(PARTS)) if after.parts[part].any()]
    hatches = ["", "..", "//", "\\\\", "xx", "--", "||"]
    axes.stackplot(
        _runs(after),
        [after.parts[part] / _MIB for part in shown],
        labels=[PARTS[part] for part in shown],
        hatch=[hatches[part] for part in shown],
        step="post",
        alpha=0.8,
    )
    if position < len(unmodified.spaces):  # the host may be a space of the plan only
        before = memory_over_time(unmodified, Plan.baseline(unmodified), position, grain)
        axes.step(_runs(before), before.live / _MIB, where="post", color="black", linestyle="--", label="before")
    for number, (name, level) in enumerate(levels.items()):
        axes.axhline(level / _MIB, color=("tab:green", "tab:red")[number % 2], linestyle=":", label=name)
    axes.set_xlabel("run number")
    axes.set_ylabel("MiB")
    axes.set_title(f"{graph.name}: memory of {after.space}")
    axes.legend(loc="upper left", fontsize="small")
    return axes


def _runs(memory: MemoryOverTime) -> list[int]:
    return [column * memory.runs_per_column for column in range(len(memory.steps))]


def _pyplot() -> Any:
    try:
        return import_module("matplotlib.pyplot")
    except ImportError as error:
        raise MissingExtraError("plot", one_line(error)) from error
