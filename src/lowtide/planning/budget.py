"""Reading a budget as a user writes it."""

import re
from collections.abc import Mapping

from lowtide.analysis.budget import Budget
from lowtide.errors import UsageError
from lowtide.graph import Graph
from lowtide.units import parse_bytes

_PERCENT = re.compile(r"\s*(\d{1,6})(?:\.(\d{1,6}))?\s*%\s*", re.ASCII)


def parse_budget(
    budget: str | int | None, graph: Graph, baseline_peak: Mapping[str, int], *, transient: bool = False
) -> Budget:
    """Combine a budget for the first space with the capacities of all.

    Bytes ("8 GiB", 1048576) hold persistent buffers too, unless they are `transient`; a percentage ("70%") is of the
    baseline's peak, which leaves them out. Raises UsageError for anything else, and for `transient` without bytes.
    """
    persistent = graph.persistent_bytes()
    allowed: dict[str, int | None] = {
        space.name: None if space.capacity_bytes is None else space.capacity_bytes - persistent[space.name]
        for space in graph.spaces
    }
    limited_by = dict.fromkeys(allowed, "its capacity")
    if transient and (budget is None or (isinstance(budget, str) and "%" in budget)):
        raise UsageError("transient says that a budget in bytes leaves persistent buffers out; give one, or leave it")
    if budget is not None:
        first = graph.spaces[0].name
        percent = _PERCENT.fullmatch(budget) if isinstance(budget, str) else None
        if percent:
            fraction = percent[2] or ""
            asked = baseline_peak[first] * int(percent[1] + fraction) // (100 * 10 ** len(fraction))
        elif isinstance(budget, str) and "%" in budget:
            raise UsageError(f"cannot read {budget!r} as a budget; write it like 8GiB or 70%")
        else:
            asked = parse_bytes(budget) - (0 if transient else persistent[first])
        capacity = allowed[first]
        if capacity is None or asked <= capacity:
            allowed[first], limited_by[first] = asked, "the budget"
    return Budget(allowed, limited_by)
