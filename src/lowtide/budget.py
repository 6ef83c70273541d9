"""The budget: how many bytes each memory space may hold beside its persistent buffers."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from lowtide.errors import UsageError
from lowtide.graph import Graph
from lowtide.units import parse_bytes

_PERCENT = re.compile(r"\s*(\d{1,6})(?:\.(\d{1,6}))?\s*%\s*", re.ASCII)


@dataclass(frozen=True, slots=True)
class Budget:
    """What a plan must stay within."""

    allowed: Mapping[str, int | None]
    """Per space, the most its peak may be, persistent buffers not counted; None where there is no limit. Below zero
    where persistent buffers alone are too large."""
    limited_by: Mapping[str, str]
    """Per space, what sets the limit: "the budget" or "its capacity"."""

    @classmethod
    def parse(cls, budget: str | int | None, graph: Graph, baseline_peak: Mapping[str, int]) -> "Budget":
        """Combine a budget for the first space with the capacities of all.

        Bytes ("8 GiB", 1048576) hold persistent buffers too; a percentage ("70%") is of the baseline's peak, which
        leaves them out. Raises UsageError for anything else.
        """
        persistent = graph.persistent_bytes()
        allowed: dict[str, int | None] = {
            space.name: None if space.capacity_bytes is None else space.capacity_bytes - persistent[space.name]
            for space in graph.spaces
        }
        limited_by = dict.fromkeys(allowed, "its capacity")
        if budget is not None:
            first = graph.spaces[0].name
            percent = _PERCENT.fullmatch(budget) if isinstance(budget, str) else None
            if percent:
                fraction = percent[2] or ""
                asked = baseline_peak[first] * int(percent[1] + fraction) // (100 * 10 ** len(fraction))
            elif isinstance(budget, str) and "%" in budget:
                raise UsageError(f"cannot read {budget!r} as a budget; write it like 8GiB or 70%")
            else:
                asked = parse_bytes(budget) - persistent[first]
            capacity = allowed[first]
            if capacity is None or asked <= capacity:
                allowed[first], limited_by[first] = asked, "the budget"
        return cls(allowed, limited_by)

    def rank(self, peaks: Mapping[str, int]) -> tuple[int, int]:
        """Return what plans are compared by, less is better: bytes over the limits of all spaces, then all bytes."""
        excess = 0
        for space, most in self.allowed.items():
            if most is not None:
                excess += max(0, peaks[space] - most)
        return excess, sum(peaks.values())
