"""Prices: the run time of every op of a graph."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from lowtide.engine.graph import Graph


@dataclass(frozen=True, eq=False, kw_only=True)
class Prices:
    """Seconds of every op, with their profile."""

    profile: str
    seconds: NDArray[np.float64]
    """One entry per op, with one run of its callees."""
    callees: Mapping[str, "Prices"] = field(default_factory=dict[str, "Prices"])
    """Prices of subgraphs by name, also nested ones. Others keep their own costs."""
    device: str = ""
    estimated: tuple[str, ...] = ()
    precision: float = 0.0
    """Plans within this share of all seconds are equally fast."""

    def of_callee(self, name: str, subgraph: Graph) -> "Prices":
        """Return the prices of a subgraph."""
        return replace(self.callees.get(name) or given_prices(subgraph), callees=self.callees)


def given_prices(graph: Graph) -> Prices:
    return Prices(profile="given", seconds=graph.cost)


def carries_costs(graph: Graph) -> bool:
    """Return whether any device cost is known, so not 1.0."""
    return bool((graph.cost[~graph.off_device] != 1.0).any())
