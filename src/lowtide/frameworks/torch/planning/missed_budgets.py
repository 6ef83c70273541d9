"""Warnings of missed budgets, delayed until other graphs' needs are known."""

import math
import warnings
from collections.abc import Generator
from contextlib import contextmanager

from lowtide.core.units import format_bytes, percent
from lowtide.engine.graph import Graph
from lowtide.engine.planning.next_technique import next_technique
from lowtide.engine.planning.result import Result
from lowtide.engine.planning.settings import PlanSettings
from lowtide.reporting.shortfall import describe

_held_back: list[list[str]] = []


def warn_missed(message: str) -> None:
    """Warn of a missed budget, or add the message to the innermost collection."""
    if _held_back:
        _held_back[-1].append(message)
    else:
        warnings.warn(message, stacklevel=3)


def warn_if_missed(name: str, graph: Graph, result: Result, settings: PlanSettings, alone: int | None = None) -> None:
    """Warn if a plan misses its budget: why, budgets it meets, and how to meet the given one.

    `alone` is the peak without lowtide.
    """
    if result.shortfall is None:
        return
    space = graph.spaces[0].name
    reached, before = result.peak_bytes[space], result.baseline_peak_bytes[space] if alone is None else alone
    why = f"{describe(result.shortfall)}; {describe_lowest_peak(reached, before, result.persistent_bytes[space])}"
    offer = next_technique(graph, result, settings)
    more = ""
    if offer is not None:
        gives = "fits" if offer.fits else f"reaches {format_bytes(offer.peak_bytes)}"
        price = f" at {percent(offer.extra_cost / offer.base_cost, signed=True)} time" if offer.base_cost else ""
        more = f"; {gives} with allow=['reorder', 'share', 'recompute']{price}"
    skipped = f"; {result.left_whole[0]}" if result.left_whole else ""
    warn_missed(f"lowtide: {name} misses its budget: {why}{more}{skipped}")


def describe_lowest_peak(reached: int, alone: int, persistent: int) -> str:
    """Describe the lowest peak and budgets it meets: bytes with parameters, and a percentage of `alone`."""
    percentage = f' or "{math.ceil(reached * 10_000 / alone) / 100:.2f}%"' if alone else ""
    met = f'budget="{reached + persistent} B" (with parameters){percentage}'
    return f"the lowest peak found is {format_bytes(reached)}, met by {met}"


@contextmanager
def collect_missed_budgets() -> Generator[list[str]]:
    _held_back.append(found := [])
    try:
        yield found
    finally:
        _held_back.pop()
