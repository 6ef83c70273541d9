"""Plans of repeated layers for large programs: one choice for all layers, settled where what runs again needs room."""

from collections.abc import Iterator
from itertools import product

from lowtide.core.index_spaces import Place
from lowtide.engine.recompute.choose_drops import trade_at
from lowtide.engine.recompute.floor import Needs
from lowtide.engine.recompute.found import Found
from lowtide.engine.recompute.program import Execution, Program
from lowtide.engine.recompute.segments import Buffers, Layers
from lowtide.engine.recompute.settle import Pick, settle_and_trim

HOPELESS = 0.25
"""Part of a budget by which segments that are too long for it are over it."""
_LAYERS_AT_TURN = (1, 2, 3, 4)
_GROWTHS = (0.0, 0.05, 0.1, 0.15, 0.2)
"""Layers of the segment before the turn, and by how many segments grow for every layer after them."""
_MOST_SETTLED = 2
"""Choices that are settled by plain prices, too."""


def segments_of(
    program: Program, needs: Needs, layers: Layers, turn: Place, budget_bytes: int
) -> Iterator[tuple[float, Buffers]]:
    """Yield what stays between segments of every length that is tried, with what plans in which it does cost at least.

    O(minimum cuts) for each yielded.
    """
    for at_turn, growth in product(_LAYERS_AT_TURN, _GROWTHS):
        staying = layers.kept_between_segments(at_turn, growth)
        yield trade_at(program, needs, turn, budget_bytes, staying).bound, staying


def settle_layers(
    program: Program, leaning: Program, needs: Needs, layers: Layers, turn: Place, found: Found, max_work: int
) -> None:
    """Offer plans that are best for one layer at the turn, settled where they need more than the budget elsewhere.

    Lengths of segments that can be cheapest come first. Each is settled by prices that lean, so that few layers trade
    more than at the turn; the two cheapest also by plain prices, by which all layers do, and what the budget can spare
    of that is left out again. `max_work` limits each of these two, and a third of it each of the others.
    """
    starts: list[tuple[float, Execution]] = []
    for least, staying in sorted(segments_of(program, needs, layers, turn, found.budget), key=lambda each: each[0]):
        if starts and least >= min(cost for cost, _ in starts):
            break
        drops = trade_at(leaning, needs, turn, found.budget, staying).choices[0]
        execution = program.execute(drops)
        found.offer(execution, drops)
        if execution.peak_bytes > (1 + HOPELESS) * found.budget:
            continue
        fits, runs = program.native.settle(
            execution.runs, leaning.cost, found.budget, 0, Pick.WORST, float("inf"), max_work // 3
        )
        if fits:
            settled = program.replay(runs)
            found.offer(settled)
            starts.append((settled.extra_cost, execution))
    for _, execution in sorted(starts, key=lambda start: start[0])[:_MOST_SETTLED]:
        fits, settled = settle_and_trim(
            program,
            execution.runs,
            found.budget,
            weights=program.cost,
            pick=Pick.WORST,
            reserve=0.0,
            max_cost=float("inf"),
            max_work=max_work,
        )
        if fits:
            found.offer(settled)
