"""Prices: how long every op of a graph takes, and who says so."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from lowtide.engine.graph import Graph


@dataclass(frozen=True, eq=False, kw_only=True)
class Prices:
    """Seconds of every op, and the profile that they come from.

    Prices stand beside the graph, not in it: a graph's costs are part of its fingerprint, and a plan must fit the
    graph that was read, whatever priced it.
    """

    profile: str
    seconds: NDArray[np.float64]
    """One entry per op; a price covers one run of what the op calls."""
    callees: Mapping[str, "Prices"] = field(default_factory=dict[str, "Prices"])
    """Prices of subgraphs by name, nested ones included. A subgraph that is missing keeps its own costs."""
    device: str = ""
    """What was measured, in words; empty for estimates."""
    estimated: tuple[str, ...] = ()
    """Among measured ops, the names of those that could not be run alone and keep an estimate."""
    precision: float = 0.0
    """Less than this share of all seconds is no difference between two plans: prices are worth no more."""

    def of_callee(self, name: str, subgraph: Graph) -> "Prices":
        """Return the prices of a subgraph."""
        return replace(self.callees.get(name) or given_prices(subgraph), callees=self.callees)

    def applied_to(self, graph: Graph) -> Graph:
        """Return the graph with these prices as its costs, for planners that read them there.

        The result has another fingerprint. A plan made for it fits the original graph once it carries that graph's.
        """
        return replace(graph, cost=self.seconds)


def given_prices(graph: Graph) -> Prices:
    """Return the costs that the graph carries, as profile "given"."""
    return Prices(profile="given", seconds=graph.cost)


def carries_costs(graph: Graph) -> bool:
    """Return whether the graph's ops were priced: some cost is not 1.0, which stands for unknown."""
    return bool((graph.cost != 1.0).any())
