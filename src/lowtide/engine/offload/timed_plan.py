"""Plans to choose from, by the seconds of their timelines."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from lowtide.core.index_spaces import SpaceId
from lowtide.engine.analysis import simulate
from lowtide.engine.costs import Prices
from lowtide.engine.graph import Graph
from lowtide.engine.plan import Plan, StepKind
from lowtide.engine.timeline import Timeline, play_timeline


@dataclass(frozen=True, slots=True, eq=False)
class TimedPlan:
    """A plan with its timeline and its peaks."""

    plan: Plan
    timeline: Timeline
    peaks: Mapping[str, int]
    """By memory space name."""
    over_bytes: int
    """Bytes over the budget, or over what the host holds where that is more."""
    host_over_bytes: int
    """Bytes over what the host holds."""

    @property
    def rank(self) -> tuple[int, float, int, int]:
        """What plans are compared by, less is better: bytes over, slow-down, copies, steps."""
        copies = self.plan.kinds == StepKind.COPY_OUT
        return self.over_bytes, self.timeline.extra_seconds, int(copies.sum()), self.plan.n_steps

    @property
    def run_starts(self) -> list[float]:
        """Return when every run starts."""
        return self.timeline.starts[self.plan.kinds == StepKind.RUN].tolist()


def play(
    graph: Graph, plan: Plan, prices: Prices, device: SpaceId, budget_bytes: int, host: SpaceId | None
) -> TimedPlan:
    """Return a plan with its timeline, its peaks and how far they are over a budget. O(steps + e)."""
    peaks = simulate(graph, plan).peak_bytes
    over, host_over = max(0, peaks[graph.spaces[device].name] - budget_bytes), 0
    if host is not None and (capacity := graph.spaces[host].capacity_bytes) is not None:
        name = graph.spaces[host].name
        if (plan.kinds == StepKind.COPY_OUT).any():
            host_over = max(0, peaks[name] + graph.persistent_bytes()[name] - capacity)
    return TimedPlan(plan, play_timeline(graph, plan, prices), peaks, max(over, host_over), host_over)


def rerun_seconds(prices: Prices, plan: Plan) -> float:
    """Return the seconds that a plan spends on running ops again."""
    runs = np.bincount(plan.order(), minlength=len(prices.seconds))
    return math.fsum(((runs - 1) * prices.seconds).tolist())
