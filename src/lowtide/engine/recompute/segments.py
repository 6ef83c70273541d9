"""Keep the buffers crossing a few cuts of the forward pass, recompute the rest."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

import numpy as np
from numpy.typing import NDArray

from lowtide.core.index_spaces import Place
from lowtide.engine.recompute.best_plan import BestPlan
from lowtide.engine.recompute.choose_drops import trade_at
from lowtide.engine.recompute.floor import Needs, first_and_last_use, is_recomputable
from lowtide.engine.recompute.program import Drops, Execution, OrderedProgram, first_run_at
from lowtide.engine.recompute.repeats import longest_stretch, op_classes
from lowtide.engine.recompute.run_sequences import Pick, settle_and_trim

Buffers = NDArray[np.bool_]
_RATIO = 1.3
MAX_EXCESS = 0.25
"""Plans over the budget by a larger share have too long segments."""
_LAYERS_AT_TURN = (1, 2, 3, 4)
_GROWTHS = (0.0, 0.05, 0.1, 0.15, 0.2)
_MOST_SEGMENTS = 500
_MAX_SETTLED = 2


@dataclass(frozen=True, slots=True, eq=False)
class CrossingBuffers:
    """Buffers crossing the places before the turn, where the backward pass starts."""

    first: NDArray[np.int64]
    last: NDArray[np.int64]
    """Last use up to the turn."""
    crosses: NDArray[np.bool_]
    """Buffers allocated between the start and the turn."""
    bytes: NDArray[np.int64]
    """Bytes that cross each place."""

    def over(self, cuts: NDArray[np.int64]) -> NDArray[np.bool_]:
        return self.crosses & (np.searchsorted(cuts, self.last) > np.searchsorted(cuts, self.first))


def crossing_buffers(program: OrderedProgram, turn: Place) -> CrossingBuffers:
    users, sizes = program.problem.graph.structure.users, program.counted_sizes
    first, _ = first_and_last_use(program)
    last = first.copy()
    places = program.places[users.values]
    is_before = places <= turn
    np.maximum.at(last, users.owners()[is_before], places[is_before])
    crosses = (first >= 0) & (first < turn)
    change = np.zeros(turn + 2, np.int64)
    np.add.at(change, first[crosses], sizes[crosses])
    np.add.at(change, last[crosses], -sizes[crosses])
    return CrossingBuffers(first, last, crosses, np.cumsum(change)[:turn])


def checkpoint_drops(program: OrderedProgram, turn: Place) -> Iterator[Drops]:
    """Yield drops of textbook checkpointing before the turn, from one segment to very many.

    Segments hold about equal bytes and end where the fewest bytes cross; the last one drops nothing. Source: Chen et
    al. 2016, Training Deep Nets with Sublinear Memory Cost. O(n + e) per yield.
    """
    first, last = first_and_last_use(program)
    crossing, sizes = crossing_buffers(program, turn), program.counted_sizes
    saved = is_recomputable(program.problem.graph) & crossing.crosses & (last > turn)
    weight = np.bincount(first[saved], weights=sizes[saved], minlength=turn)[:turn].cumsum() if turn else np.zeros(0)
    moment, last_use = first_run_at(turn), program.native.last_use
    tried: set[tuple[Place, ...]] = set()
    count = 1.0
    while turn and weight[-1] > 0 and count <= min(turn, _MOST_SEGMENTS):
        cuts = _cuts(crossing.bytes, weight, int(count))
        count = max(count * _RATIO, count + 1)
        if tuple(cuts) in tried:
            continue
        tried.add(tuple(cuts))
        is_crossing = crossing.over(np.asarray(cuts))
        dropped = saved & ~is_crossing & (first <= cuts[-1]) & (last_use >= moment)
        # Keep crossing buffers not used after the turn, such as a sum saved as its cast. Otherwise a segment would be
        # recomputed from all segments before it.
        kept = is_crossing & (crossing.last < turn) & (last_use < moment)
        listed = np.flatnonzero(dropped | kept)
        rows = np.column_stack([np.full(len(listed), moment), listed]).astype(np.int32)
        yield Drops(np.asarray([moment], np.int32), rows)


def _cuts(crossing_bytes: NDArray[np.int64], weight: NDArray[np.float64], count: int) -> list[Place]:
    levels = float(weight[-1]) * np.arange(count + 1) / (count + 1)
    ends: list[int] = np.searchsorted(weight, levels, side="left").tolist()
    cuts: list[Place] = []
    for number in range(1, count + 1):
        middle = ends[number]
        low = max((ends[number - 1] + middle) // 2, cuts[-1] + 1 if cuts else 0)
        high = (middle + (ends[number + 1] if number < count else len(weight) - 1)) // 2 + 1
        if low >= high:
            continue
        stretch = crossing_bytes[low:high]
        least = np.flatnonzero(stretch == stretch.min())
        cuts.append(low + int(least[np.argmin(np.abs(least + low - middle))]))
    return cuts or [0]


class Layers:
    """Repeated layers before the turn, cut where the fewest bytes cross."""

    def __init__(self, crossing: CrossingBuffers, boundaries: NDArray[np.int64], recomputable: Buffers) -> None:
        self._crossing, self._boundaries, self._remade = crossing, boundaries, recomputable

    def kept_between_segments(self, layers: int, growth: float) -> Buffers:
        """Return, per buffer, whether it is recomputable and crosses between segments.

        The last segment has `layers` layers. Others are longer by `growth` per later layer: its buffers are free by
        then.
        """
        ends: list[int] = []
        passed, at = 0, len(self._boundaries) - 1
        while at >= 0:
            ends.append(at)
            length = int(layers + growth * passed)
            passed, at = passed + length, at - length
        return self._crossing.over(self._boundaries[ends[::-1]]) & self._remade


def repeated_layers(program: OrderedProgram, turn: Place) -> Layers | None:
    """Return the layers that repeat before the turn, or None."""
    stretch = longest_stretch(op_classes(program.problem.graph, program.order[:turn].tolist()))
    if stretch is None:
        return None
    crossing = crossing_buffers(program, turn)
    within = crossing.bytes[stretch.first : stretch.first + stretch.period]
    phases = stretch.first + np.flatnonzero(within == within.min())
    phase = int(phases[np.argmin((stretch.end - 1 - phases) % stretch.period)])
    boundaries = np.arange(phase, stretch.end, stretch.period)
    return Layers(crossing, boundaries, is_recomputable(program.problem.graph))


def segments_of(
    program: OrderedProgram, needs: Needs, layers: Layers, turn: Place, budget_bytes: int
) -> Iterator[tuple[float, Buffers]]:
    """Yield a lower bound on the extra cost and the kept buffers per segment length. O(minimum cuts) each."""
    yielded: set[bytes] = set()
    for at_turn, growth in product(_LAYERS_AT_TURN, _GROWTHS):
        staying = layers.kept_between_segments(at_turn, growth)
        trade = trade_at(program, needs, turn, budget_bytes, staying)
        choice = trade.choices[0].listed.tobytes()
        if choice not in yielded:
            yielded.add(choice)
            yield trade.bound, staying


def settle_layers(
    program: OrderedProgram,
    rising: OrderedProgram,
    needs: Needs,
    layers: Layers,
    turn: Place,
    found: BestPlan,
    max_work: int,
    max_cost: float,
) -> None:
    """Offer plans that are best for one layer at the turn, settled where they exceed the budget elsewhere.

    Lengths are settled with `rising` costs, so that few layers trade more, the two cheapest again with plain costs.
    Work is limited to `max_work` for each of them, extra cost to `max_cost`.
    """
    starts: list[tuple[float, Execution]] = []
    for least, staying in sorted(segments_of(program, needs, layers, turn, found.budget), key=lambda each: each[0]):
        if starts and least >= min(cost for cost, _ in starts):
            break
        drops = trade_at(rising, needs, turn, found.budget, staying).choices[0]
        execution = program.execute(drops)
        found.offer(execution, drops)
        if execution.peak_bytes > (1 + MAX_EXCESS) * found.budget:
            continue
        costs = sorted(cost for cost, _ in starts)
        limit = min([max_cost, *costs[_MAX_SETTLED - 1 : _MAX_SETTLED]])
        fits, runs = program.native.settle(
            execution.runs, rising.cost, found.budget, 0, Pick.WORST, limit, max_work // 3
        )
        if fits:
            settled = program.replay(runs)
            found.offer(settled)
            starts.append((settled.extra_cost, execution))
    for _, execution in sorted(starts, key=lambda start: start[0])[:_MAX_SETTLED]:
        fits, settled = settle_and_trim(program, execution.runs, found.budget, pick=Pick.WORST, max_work=max_work)
        if fits:
            found.offer(settled)
