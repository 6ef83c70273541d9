"""Warnings of graphs that miss their budget, held back as long as it is not known what others of the program need."""

import math
import warnings
from collections.abc import Generator
from contextlib import contextmanager

from lowtide.core.units import format_bytes
from lowtide.engine.graph import Graph
from lowtide.engine.planning.next_technique import next_technique
from lowtide.engine.planning.result import Result
from lowtide.engine.planning.settings import PlanSettings
from lowtide.reporting.shortfall import describe

_held_back: list[list[str]] = []


def warn_missed(message: str) -> None:
    """Warn that a graph misses its budget, or leave that to whoever holds such warnings back."""
    if _held_back:
        _held_back[-1].append(message)
    else:
        warnings.warn(message, stacklevel=3)


def warn_of_plan(name: str, graph: Graph, result: Result, settings: PlanSettings, alone: int | None = None) -> None:
    """Warn in one line where a plan misses its budget: why, which budgets it meets, and what would meet the one given.

    Where large results were to be computed in chunks, it ends with the first that is not, and why.
    `alone` is what the same program takes without lowtide, by default as it is written.
    """
    if result.shortfall is None:
        return
    space = graph.spaces[0].name
    reached, before = result.peak_bytes[space], result.baseline_peak_bytes[space] if alone is None else alone
    why = f"{describe(result.shortfall)}; {least_reached(reached, before, result.persistent_bytes[space])}"
    offer = next_technique(graph, result, settings)
    price = f" at {offer.extra_cost / offer.base_cost:+.1%} time" if offer is not None and offer.base_cost else ""
    gives = "" if offer is None else "fits" if offer.fits else f"{format_bytes(offer.peak_bytes)} are reached"
    more = "" if offer is None else f"; {gives} with allow=['reorder', 'share', 'recompute']{price}"
    whole = f"; {result.left_whole[0]}" if result.left_whole else ""
    warn_missed(f"lowtide: {name} does not fit its budget: {why}{more}{whole}")


def least_reached(reached: int, alone: int, persistent: int) -> str:
    """Say what was reached, and which budgets it meets: bytes, parameters included, and a part of `alone`.

    `alone` is what the same program takes without lowtide.
    """
    share = f" or {math.ceil(reached * 10_000 / alone) / 100:.2f}%" if alone else ""
    met = f"a budget of {reached + persistent} bytes with parameters{share}"
    return f"the least reached is {format_bytes(reached)}, {met}"


@contextmanager
def missed_held_back() -> Generator[list[str]]:
    """Collect within what would be warned of."""
    _held_back.append(found := [])
    try:
        yield found
    finally:
        _held_back.pop()
