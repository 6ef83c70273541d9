"""Everything that a report says of a plan, computed once, whatever it is then written as."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

from lowtide.analysis.holders_at_peak import Holder, holders_at_peak
from lowtide.analysis.memory_over_time import PARTS, MemoryOverTime, memory_over_time, runs_per_column
from lowtide.costs import Prices
from lowtide.costs import price as price_graph
from lowtide.frameworks.model import Measurement
from lowtide.graph import Graph
from lowtide.graph.reruns import may_run_twice, why_not_twice
from lowtide.plan import Plan, StepKind
from lowtide.planning.frontier import Frontier
from lowtide.planning.result import Result
from lowtide.report.claims import caption, claims_to_json
from lowtide.report.folding import Fold, fold
from lowtide.report.frontier import frontier_to_json
from lowtide.report.page.actions import Actions, Bar, actions_of, stream_bars
from lowtide.report.page.rectangles import Rectangles

MOST_COLUMNS = 4096
"""Columns of the picture of memory over runs."""
_MOST_HOLDERS = 200
_MOST_IN_A_FOLD = 40
_MOST_ACTIONS = 200


@dataclass(frozen=True, kw_only=True, eq=False)
class Facts:
    """A plan beside the untouched program. Byte figures leave persistent buffers out, as everywhere."""

    graph: Graph
    plan: Plan
    allowed_bytes: Mapping[str, int | None]
    """Per memory space, what the plan had to stay within; None where nothing limits it."""
    prices: Prices
    shortfall: str | None = None
    """Why the budget is not met, in one sentence."""
    measured: Measurement | None = None
    frontier: Frontier | None = None
    in_chunks: bool = False
    """Whether the graph is the program in chunks."""

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
        in_chunks: bool = False,
    ) -> "Facts":
        """Gather facts; without prices the graph's own costs are taken, without a result the spaces' capacities."""
        limits = {space.name: space.capacity_bytes for space in graph.spaces}
        return cls(
            graph=graph,
            plan=plan,
            allowed_bytes=limits if result is None else result.budget.allowed,
            prices=prices or price_graph(graph, "given"),
            shortfall=None if result is None else result.shortfall,
            measured=measured,
            frontier=frontier,
            in_chunks=in_chunks,
        )

    @cached_property
    def baseline(self) -> Plan:
        """The untouched program."""
        return Plan.baseline(self.graph)

    @cached_property
    def over_time(self) -> list[tuple[MemoryOverTime, MemoryOverTime]]:
        """Per memory space, the untouched program and the plan, on the same columns."""
        n_runs = max(self.graph.n_ops, len(self.plan.order()))
        grain = runs_per_column(n_runs, MOST_COLUMNS)
        plans = (self.baseline, self.plan)
        first, second = ([memory_over_time(self.graph, p, k, grain) for k in range(self.n_spaces)] for p in plans)
        return list(zip(first, second, strict=True))

    @property
    def n_spaces(self) -> int:
        """How many memory spaces there are."""
        return len(self.graph.spaces)

    @cached_property
    def baseline_peak_bytes(self) -> dict[str, int]:
        """What the untouched program needs, per space."""
        return {before.space: int(before.live.max(initial=0)) for before, _ in self.over_time}

    @cached_property
    def peak_bytes(self) -> dict[str, int]:
        """What the plan needs, per space, simulated anew."""
        return {after.space: int(after.live.max(initial=0)) for _, after in self.over_time}

    @cached_property
    def holders(self) -> list[Fold]:
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

    def figures(self) -> dict[str, Any]:
        """Return the figures without pictures, as one JSON object."""
        plan, actions = self.plan, self.actions
        return {
            "name": self.graph.name,
            "n_ops": self.graph.n_ops,
            "n_buffers": self.graph.n_buffers,
            "in_chunks": self.in_chunks,
            "status": plan.status,
            "baseline_peak_bytes": self.baseline_peak_bytes,
            "peak_bytes": self.peak_bytes,
            "arena_bytes": dict(plan.arena_bytes),
            "lower_bound_bytes": dict(plan.lower_bound_bytes),
            "bound_sentence": caption(plan.claims),
            "claims": claims_to_json(plan.claims),
            "budget_bytes": dict(self.allowed_bytes),
            "shortfall": self.shortfall,
            "persistent_bytes": self.graph.persistent_bytes(),
            "measured": None if self.measured is None else asdict(self.measured),
            "extra_cost": actions.extra_cost,
            "base_cost": actions.base_cost,
            "costs": self.prices.profile,
            "n_moved": len(actions.moved),
            "moved": list(actions.moved[:_MOST_ACTIONS]),
            "n_shared": len(actions.shared),
            "shared": [asdict(row) for row in actions.shared[:_MOST_ACTIONS]],
            "n_reruns": sum(row.times for row in actions.reruns),
            "reruns": [asdict(row) for row in actions.reruns[:_MOST_ACTIONS]],
            "n_copied": len(actions.copied),
            "copied": [asdict(row) for row in actions.copied[:_MOST_ACTIONS]],
            "transfers": asdict(actions.transfers),
            "n_holders": sum(len(each.holders) for each in self.holders),
            "holders": [self._fold_to_json(each) for each in self.holders[:_MOST_HOLDERS]],
            "frontier": None if self.frontier is None else frontier_to_json(self.frontier),
            "unmodeled": list(self.graph.unmodeled),
        }

    def pictures(self) -> dict[str, Any]:
        """Return what is drawn, per memory space."""
        bars, left_out = self.streams
        return {
            "parts": list(PARTS),
            "spaces": [self._space_to_json(space) for space in range(self.n_spaces)],
            "streams": {"bars": [[bar.stream, bar.start, bar.seconds, bar.what] for bar in bars], "left_out": left_out},
        }

    def _space_to_json(self, space: int) -> dict[str, Any]:
        before, after = self.over_time[space]
        rectangles = None
        if len(self.plan.addresses):
            arena = self.plan.arena_bytes.get(after.space, 0)
            found = Rectangles.of(self.graph, self.plan, space)
            rectangles = found.to_json(self.graph, after.n_runs, arena)
        return {
            "name": after.space,
            "runs_per_column": after.runs_per_column,
            "before": self._series(before, self.baseline),
            "after": self._series(after, self.plan),
            "rectangles": rectangles,
        }

    def _series(self, memory: MemoryOverTime, plan: Plan) -> dict[str, Any]:
        names = self.graph.op_names
        at = [_op_at(plan, step) for step in memory.steps.tolist()]
        return {
            "n_runs": memory.n_runs,
            "parts": memory.parts.tolist(),
            "ops": ["" if op is None else names[op] for op in at],
        }

    def _fold_to_json(self, each: Fold) -> dict[str, Any]:
        first = each.first
        return {
            "label": each.label,
            "space": first.space,
            "count": len(each.holders),
            "size_bytes": each.size_bytes,
            "lifetime": first.lifetime,
            "op": first.op,
            "first_use": first.first_use,
            "last_use": first.last_use,
            "kept_alive_by": list(first.kept_alive_by),
            "freed_by": self.what_frees(first),
            "members": [
                {"name": holder.name, "op": holder.op, "kept_alive_by": list(holder.kept_alive_by)}
                for holder in each.holders[:_MOST_IN_A_FOLD]
            ],
        }


def _op_at(plan: Plan, step: int) -> int | None:
    """Return the op that runs at a step; None before the first one and where it is a free or a copy."""
    return int(plan.targets[step]) if step >= 0 and plan.kinds[step] == StepKind.RUN else None
