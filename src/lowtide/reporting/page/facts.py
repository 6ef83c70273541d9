"""Everything that a report says of a plan, computed once, whatever it is then written as."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from lowtide.engine.analysis.folding import Fold, fold
from lowtide.engine.analysis.holders_at_peak import Holder, holders_at_peak
from lowtide.engine.analysis.memory_over_time import MemoryOverTime, memory_over_time, runs_per_column
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
"""Columns of the picture of memory over runs."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Facts:
    """A plan beside the unmodified program. Byte figures leave persistent buffers out, as everywhere."""

    graph: Graph
    plan: Plan
    allowed_bytes: Mapping[str, int | None]
    """Per memory space, what the plan had to stay within; None where nothing limits it."""
    prices: Prices
    shortfall: str | None = None
    """Why the budget is not met, in one sentence."""
    measured: Measurement | None = None
    frontier: Frontier | None = None
    unmodified: Graph
    """The program as it stands; another graph where the plan is for the program in chunks."""

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
        """Gather facts; without prices the graph's own costs are taken, without a result the spaces' capacities."""
        limits = {space.name: space.capacity_bytes for space in graph.spaces}
        return cls(
            graph=graph,
            plan=plan,
            allowed_bytes=limits if result is None else result.budget.allowed,
            prices=prices or price_graph(graph, "given"),
            shortfall=None if result is None else describe_missed(result) or None,
            measured=measured,
            frontier=frontier,
            unmodified=unmodified or graph,
        )

    @cached_property
    def baseline(self) -> Plan:
        """The unmodified program."""
        return Plan.baseline(self.unmodified)

    @property
    def in_chunks(self) -> bool:
        """Whether the plan is for the program in chunks."""
        return self.unmodified is not self.graph

    @cached_property
    def over_time(self) -> list[tuple[MemoryOverTime, MemoryOverTime]]:
        """Per memory space, the unmodified program and the plan, on the same columns."""
        n_runs = max(self.unmodified.n_ops, len(self.plan.order()))
        grain = runs_per_column(n_runs, MOST_COLUMNS)
        plans = ((self.unmodified, self.baseline), (self.graph, self.plan))
        first, second = (
            [memory_over_time(graph, plan, k, grain) for k in range(len(self.graph.spaces))] for graph, plan in plans
        )
        return list(zip(first, second, strict=True))

    @cached_property
    def baseline_peak_bytes(self) -> dict[str, int]:
        """What the unmodified program needs, per space."""
        return {before.space: int(before.live.max(initial=0)) for before, _ in self.over_time}

    @cached_property
    def peak_bytes(self) -> dict[str, int]:
        """What the plan needs, per space, simulated anew."""
        return {after.space: int(after.live.max(initial=0)) for _, after in self.over_time}

    @cached_property
    def holders(self) -> list[Fold[Holder]]:
        """Who holds memory at the plan's peaks, repeated layers folded."""
        return fold(holders_at_peak(self.graph, self.plan))

    @cached_property
    def actions(self) -> Actions:
        """What the plan does."""
        return actions_of(self.graph, self.plan, self.prices)

    @cached_property
    def streams(self) -> tuple[list[Bar], int]:
        """What every stream does and when, and how many bars are left out."""
        return stream_bars(self.graph, self.plan, self.prices)

    @cached_property
    def _ops_by_name(self) -> dict[str, int]:
        return {name: op for op, name in enumerate(self.graph.op_names)}

    @cached_property
    def _may_run_twice(self) -> Any:
        return may_run_twice(self.graph)

    def what_frees(self, holder: Holder) -> str:
        """Say what would take a holder off the peak."""
        match holder.lifetime:
            case "scratch":
                return "the op in smaller pieces"
            case "input":
                return "the caller giving it up (donated)"
            case "output":
                return "a program that does not return it"
            case _:
                pass
        op = None if holder.op is None else self._ops_by_name.get(holder.op)
        if op is None:
            return "its readers earlier"
        if self._may_run_twice[op]:
            return "its readers earlier, a second run of what makes it, or a copy to the host"
        return f"its readers earlier; {holder.op} {why_not_twice(self.graph, op)}, so it runs once"
