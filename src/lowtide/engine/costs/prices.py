"""Prices: the run time of every op of a graph, and its origin."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from lowtide.engine.graph import Graph


@dataclass(frozen=True, eq=False, kw_only=True)
class Prices:
    """Seconds of every op, and the profile that gave them."""

    profile: str
    seconds: NDArray[np.float64]
    """One entry per op, including one run of its callees."""
    callees: Mapping[str, "Prices"] = field(default_factory=dict[str, "Prices"])
    """Prices of subgraphs by name, also nested ones. Other subgraphs keep their own costs."""
    device: str = ""
    """The measured device, in words; empty for estimates."""
    estimated: tuple[str, ...] = ()
    """Names of ops that could not be measured and keep an estimate."""
    precision: float = 0.0
    """Plans count as equally fast if they differ by less than this share of all seconds."""

    def of_callee(self, name: str, subgraph: Graph) -> "Prices":
        """Return the prices of a subgraph."""
        return replace(self.callees.get(name) or given_prices(subgraph), callees=self.callees)

    def applied_to(self, graph: Graph) -> Graph:
        """Return the graph with these prices as its costs; it has another fingerprint."""
        return replace(graph, cost=self.seconds)


def given_prices(graph: Graph) -> Prices:
    """Return the costs of the graph as profile "given"."""
    return Prices(profile="given", seconds=graph.cost)


def carries_costs(graph: Graph) -> bool:
    """Return whether any op has a known cost, which differs from 1.0."""
    return bool((graph.cost != 1.0).any())
