"""The facts of a report."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from lowtide.core.index_spaces import SpaceId
from lowtide.core.memory_picture import MemoryPicture
from lowtide.engine.analysis.folding import Fold, fold
from lowtide.engine.analysis.holders_at_peak import Holder, holders_at_peak
from lowtide.engine.analysis.memory_over_time import MemoryOverTime, memory_over_time, runs_per_column
from lowtide.engine.analysis.memory_picture import largest_names
from lowtide.engine.costs import Prices
from lowtide.engine.costs import price as price_graph
from lowtide.engine.graph import Graph
from lowtide.engine.graph.execution import may_run_twice, why_not_twice
from lowtide.engine.plan import Plan
from lowtide.engine.planning.frontier import Frontier
from lowtide.engine.planning.measured import Measurement
from lowtide.engine.planning.result import Result
from lowtide.reporting.page.actions import Actions, Bar, actions_of, stream_bars
from lowtide.reporting.shortfall import describe_missed

MOST_COLUMNS = 4096


@dataclass(frozen=True, kw_only=True, eq=False)
class Facts:
    """A plan and its unmodified program. Bytes exclude persistent buffers."""

    graph: Graph
    plan: Plan
    prices: Prices
    result: Result | None = None
    """None for a plan from a file."""
    measured: Measurement | None = None
    frontier: Frontier | None = None
    unmodified: Graph
    """Another graph than `graph` if the plan is for another form."""

    @classmethod
    def of(
        cls,
        graph: Graph,
        plan: Plan,
        *,
        prices: Prices | None = None,
        result: Result | None = None,
        measured: Measurement | None = None,
        frontier: Frontier | None = None,
        unmodified: Graph | None = None,
    ) -> "Facts":
        return cls(
            graph=graph,
            plan=plan,
            prices=prices or price_graph(graph, "given"),
            result=result,
            measured=measured,
            frontier=frontier,
            unmodified=unmodified or graph,
        )

    @property
    def allowed_bytes(self) -> Mapping[str, int | None]:
        """Limit per memory space, None if there is none."""
        if self.result is None:
            return {space.name: space.capacity_bytes for space in self.graph.spaces}
        return self.result.budget.allowed

    @property
    def shortfall(self) -> str | None:
        return None if self.result is None else describe_missed(self.result)

    @cached_property
    def baseline(self) -> Plan:
        return Plan.baseline(self.unmodified)

    @property
    def in_chunks(self) -> bool:
        """Whether the planned form is in chunks. With state on the host, the graph is another one, too."""
        if self.result is not None:
            return self.result.form != "unmodified"
        is_other = self.unmodified is not self.graph
        return is_other and self.unmodified.persistent_bytes() == self.graph.persistent_bytes()

    @cached_property
    def over_time(self) -> list[tuple[MemoryOverTime, MemoryOverTime]]:
        """The unmodified program and the plan, per space, on the same columns."""
        n_runs = max(self.unmodified.n_ops, len(self.plan.order()))
        grain = runs_per_column(n_runs, MOST_COLUMNS)
        plans = ((self.unmodified, self.baseline), (self.graph, self.plan))
        first, second = (
            [memory_over_time(graph, plan, k, grain) for k in range(len(self.graph.spaces))] for graph, plan in plans
        )
        return list(zip(first, second, strict=True))

    def picture(self, space: SpaceId = 0) -> MemoryPicture:
        before, after = self.over_time[space]
        held = [holder for each in self.holders for holder in each.holders if holder.space == after.space]
        return MemoryPicture(
            name=self.graph.name,
            space=after.space,
            before=before.live,
            after=after.live,
            budget_bytes=self.allowed_bytes.get(after.space),
            largest=largest_names(held),
        )

    @cached_property
    def baseline_peak_bytes(self) -> dict[str, int]:
        return {before.space: int(before.live.max(initial=0)) for before, _ in self.over_time}

    @cached_property
    def peak_bytes(self) -> dict[str, int]:
        return {after.space: int(after.live.max(initial=0)) for _, after in self.over_time}

    @cached_property
    def holders(self) -> list[Fold[Holder]]:
        """Tensors alive at the plan's peaks, repeated layers folded."""
        return fold(holders_at_peak(self.graph, self.plan))

    @cached_property
    def actions(self) -> Actions:
        return actions_of(self.graph, self.plan, self.prices)

    @property
    def extra_time(self) -> float:
        """Added time, as a share of the unmodified program's; without a result, without chunks."""
        if self.result is not None:
            return self.result.extra_time
        return self.actions.extra_cost / self.actions.base_cost if self.actions.base_cost else 0.0

    @cached_property
    def streams(self) -> tuple[list[Bar], int]:
        return stream_bars(self.graph, self.plan, self.prices)

    @cached_property
    def _ops_by_name(self) -> dict[str, int]:
        return {name: op for op, name in enumerate(self.graph.op_names)}

    @cached_property
    def _may_run_twice(self) -> Any:
        return may_run_twice(self.graph)

    def ways_to_lower(self, holder: Holder) -> str:
        match holder.lifetime:
            case "scratch":
                return "split the op into smaller ones"
            case "input":
                return "donate the input"
            case "output":
                return "do not return it"
            case _:
                pass
        op = None if holder.op is None else self._ops_by_name.get(holder.op)
        if op is None:
            return "run its readers earlier"
        if self._may_run_twice[op]:
            return "run its readers earlier, recompute it, or offload it"
        return f"run its readers earlier; no recomputation, since {holder.op} {why_not_twice(self.graph, op)}"
