"""How many budgets that some plan meets are missed on tiny graphs, and what the plans found cost above the least.

The oracle is Dijkstra over the versions of all buffers, with any number of reruns and first runs in any order.
"""

import argparse
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from math import inf
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.results import write_section
from lowtide.core.effort import EffortName
from lowtide.engine.analysis import Problem
from lowtide.engine.analysis.problem import Order
from lowtide.engine.graph import Graph
from lowtide.engine.recompute import ComposeSettings, RecomputeResult, compose, least_possible, plan_within_budget
from lowtide.engine.schedule.search import Search
from tests.oracles.least_extra_cost import least_extra_cost
from tests.oracles.plans import problem_of
from tests.oracles.skipping_graphs import skipping_graph
from tests.strategies import random_graph

EFFORT: EffortName = "fast"


@dataclass
class Tally:
    """Budgets below the least peak of the given order, above the floor, of one kind of graph."""

    met: int = 0
    """By some plan."""
    missed: int = 0
    """Of these, by the planner."""
    cost: float = 0.0
    least: float = 0.0
    wrong: int = 0
    """Plans said to fit where none does, or cheaper than the least cost."""

    def add(self, least: float, found: RecomputeResult) -> None:
        """Count one budget."""
        self.wrong += found.fits and found.extra_cost < least
        if least < inf:
            self.met += 1
            self.missed += not found.fits
            if found.fits:
                self.cost += found.extra_cost
                self.least += least

    def row(self, name: str) -> str:
        """Return the row of the table."""
        above = self.cost / self.least - 1 if self.least else 0.0
        share = self.missed / max(1, self.met)
        return f"| {name} | {self.met} | {self.missed} | {share:.1%} | {above:.1%} | {self.wrong} |"


def tiny_graphs(count: int) -> Iterator[tuple[str, Graph]]:
    """Yield graphs of three to seven ops in one memory space, with the name of their kind."""
    for seed in range(count):
        graph = random_graph(seed, 3 + seed % 4)
        if len(graph.spaces) == 1 and not graph.subgraphs:
            mutates = len(graph.mutates.values) > 0
            yield "with mutations" if mutates else "without mutations", graph
        yield "read again much later", skipping_graph(seed)


def measure(count: int) -> dict[str, Tally]:
    """Return the tallies by kind of graph and of order."""
    tallies: dict[str, Tally] = {}
    for kind, graph in tiny_graphs(count):
        problem = problem_of(graph)
        given = problem.given_order()
        best = Search(effort=EFFORT).order(problem)
        floor = least_possible(problem, 0).peak_bytes
        for budget in range(int(problem.evaluate(given).peaks[0]) - 1, floor - 1, -1):
            found = plan_within_budget(problem, given, budget)
            tallies.setdefault(f"{kind}, program order", Tally()).add(least_extra_cost(problem, budget), found)
            least = least_extra_cost(problem, budget, any_order=True)
            anywhere = _composed(problem, budget, [("given", given), ("search", best)])
            tallies.setdefault(f"{kind}, any order", Tally()).add(least, anywhere)
    return tallies


def _composed(problem: Problem, budget: int, orders: list[tuple[str, Order]]) -> RecomputeResult:
    return compose(problem, orders, budget, ComposeSettings(effort=EFFORT)).result


def main() -> None:
    """Write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--graphs", type=int, default=150, help="seeds a kind of graph")
    count: int = parser.parse_args().graphs
    tallies = measure(count)
    table = [
        f"Graphs of 3 to 7 ops, {count} seeds a kind, with in-place pairs; every budget in bytes from the floor of all",
        "plans to the peak of the given order. *Met*: some plan meets it. *Above*: cost of the plans found over the",
        "least for the same budgets. Nothing may be wrong: a plan where there is none, or one below the least cost.",
        "",
        "| graphs, first runs | met | missed | of these | above | wrong |",
        "|---|--:|--:|--:|--:|--:|",
        *(tally.row(name) for name, tally in sorted(tallies.items())),
    ]
    print("\n".join(table))
    write_section("Budgets of tiny graphs", "python benchmarks/bench_tiny_budgets.py", "\n".join(table))


if __name__ == "__main__":
    main()
