"""Reading a budget."""

import re
from collections.abc import Mapping
from fractions import Fraction
from typing import TypeAlias

from lowtide.core.errors import UsageError
from lowtide.core.units import check_unit, parse_bytes
from lowtide.engine.analysis.budget import Budget
from lowtide.engine.graph import Graph

GivenBudget: TypeAlias = str | int | float | None
"""Bytes ("8 GiB", 1048576), a share of the baseline's peak ("70%", 0.7), or none."""
_PERCENT = re.compile(r"\s*(\d{1,6}(?:\.\d{1,6})?)\s*%\s*", re.ASCII)
_SHARE = re.compile(r"\s*(\d{0,19}\.\d{1,19})\s*", re.ASCII)


_MOST_PERCENT = 100
_EXAMPLES = "800MiB, 8GiB, 1048576 or 60%"
_EXAMPLES_WITH_FIT = '800MiB, 8GiB, 1048576, 60% or "fit"'


def parse_budget(
    budget: GivenBudget, graph: Graph, baseline_peak: Mapping[str, int], *, transient: bool = False
) -> Budget:
    """Return the limits of all memory spaces, from a budget for the first one and all capacities.

    Bytes include persistent buffers unless `transient`; shares of the baseline's peak exclude them. Raises UsageError
    for an unreadable budget, and for `transient` without bytes.
    """
    persistent = graph.persistent_bytes()
    allowed: dict[str, int | None] = {
        space.name: None if space.capacity_bytes is None else space.capacity_bytes - persistent[space.name]
        for space in graph.spaces
    }
    limited_by = dict.fromkeys(allowed, "its capacity")
    given = None if budget is None else read_budget(budget)
    if transient and not isinstance(given, int):
        raise UsageError("transient applies to a budget in bytes; give one, or leave transient out")
    if given is not None:
        first = graph.spaces[0].name
        asked = _asked(given, baseline_peak[first], 0 if transient else persistent[first])
        capacity = allowed[first]
        if capacity is None or asked <= capacity:
            allowed[first], limited_by[first] = asked, "the budget"
    return Budget(allowed, limited_by)


def given_budget(budget: GivenBudget, *, or_fit: bool = False) -> GivenBudget:
    """Return the budget; raises UsageError if it is unreadable or lacks a unit: 50, but not "50 B"."""
    if budget is not None:
        read_budget(budget, _EXAMPLES_WITH_FIT if or_fit else _EXAMPLES)
        is_small = isinstance(budget, int | str) and str(budget).strip().isdecimal() and int(budget) <= _MOST_PERCENT
        check_unit(budget, ("%", "MiB", "GiB") if is_small else ("MiB", "GiB"))
    return budget


def budget_bytes(budget: str | int | float, baseline_peak: int, persistent: int) -> int:
    """Return a budget's bytes without persistent buffers; raises UsageError if unreadable."""
    return _asked(read_budget(budget), baseline_peak, persistent)


def is_part(budget: GivenBudget) -> bool:
    """Return whether a budget is a share of the baseline's peak."""
    return budget is not None and not isinstance(read_budget(budget), int)


def _asked(given: int | Fraction, baseline_peak: int, persistent: int) -> int:
    return given - persistent if isinstance(given, int) else int(baseline_peak * given)


def read_budget(budget: str | int | float, examples: str = _EXAMPLES) -> int | Fraction:
    """Return bytes or a share of the baseline's peak; raises UsageError for anything else."""
    percent = _PERCENT.fullmatch(budget) if isinstance(budget, str) else None
    if percent:
        return Fraction(percent[1]) / 100
    if isinstance(budget, float) or (isinstance(budget, str) and _SHARE.fullmatch(budget)):
        if 0 <= float(budget) <= 1:
            return Fraction(str(budget).strip())
        raise UsageError(f"a budget of {budget} is no share of the peak (0 to 1) and has no unit; write 8GiB or 70%")
    if isinstance(budget, bool) or (isinstance(budget, str) and "%" in budget):
        raise UsageError(f"cannot read {budget!r} as a budget; write it like 8GiB or 70%")
    return parse_bytes(budget, examples)
