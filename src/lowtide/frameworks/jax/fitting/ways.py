"""Ways to run a program: in the order it was traced in, or by a plan, with its order left to XLA or held."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from lowtide.core.index_spaces import OpId
from lowtide.engine.analysis import simulate
from lowtide.engine.planning.result import Result
from lowtide.engine.recompute.checkpointing import segment_plan
from lowtide.frameworks.jax.fitting.variants import Variant, only_figure
from lowtide.frameworks.jax.flat.mesh import Flat

HELD = 4
"""How many runs XLA may order as it likes where an order is held."""
OTHERWISE_HELD = (2, 8)
"""The same, tried last, for the candidate that came nearest."""
_SEGMENTS = (2, 3, 4, 5, 6, 8, 10, 12, 16)
_MOST_SEGMENT_PLANS = 4


@dataclass(frozen=True, slots=True)
class Way:
    """How to run a variant: in program order, or by a sequence of runs."""

    name: str = ""
    runs: tuple[OpId, ...] | None = None
    window: int | None = None
    """See `run_plan`; None leaves the order to XLA."""
    predicted_bytes: int | None = None
    result: Result | None = None

    def of(self, variant: Variant) -> Flat:
        """Return a variant run this way, as a function of flat arguments."""
        return variant.unplanned() if self.runs is None else variant.following(self.runs, self.window)

    def held(self, window: int = HELD) -> "Way":
        """Return this way with its order held."""
        name = self.name.partition(", held")[0]
        return replace(self, name=f"{name}, held by {window}", window=window)


def planned_ways(result: Result, only_held: bool = False) -> Iterator[Way]:
    """Iterate the ways to follow a plan; where nothing runs again, XLA would not see it unless it is held."""
    way = Way("planned", tuple(result.plan.order().tolist()), None, only_figure(result.peak_bytes), result)
    if result.reruns and not only_held:
        yield way
    yield way.held()


def segment_ways(variant: Variant) -> Iterator[Way]:
    """Iterate plans by segments, of several numbers of them those with the least peaks, each left to XLA and held."""
    graph = variant.translation.graph
    ways: list[Way] = []
    for segments in _SEGMENTS:
        plan = segment_plan(graph, n_segments=segments)
        peak = only_figure(simulate(graph, plan).peak_bytes)
        ways.append(Way(f"in {segments} segments", tuple(plan.order().tolist()), None, peak))
    for way in sorted(ways, key=lambda way: way.predicted_bytes or 0)[:_MOST_SEGMENT_PLANS]:
        yield way
        yield way.held()
