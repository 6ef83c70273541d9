"""Hold the search against every order there is, on thousands of small random graphs.

The oracle is dynamic programming over all closed sets of ops. With one memory space the peak found and the bound proven
must both equal the least peak; with two, no bound may exceed the least peak of its space.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.results import write_section
from lowtide.core.effort import SEARCH_EFFORTS
from lowtide.engine.analysis import Problem
from lowtide.engine.search import solve
from tests.oracles.least_peak import least_peak
from tests.oracles.random_graphs import random_graph as dense_graph
from tests.strategies import random_graph

MOST_OPS = 12


def mismatches(n_seeds: int) -> tuple[int, int, int]:
    """Return how many problems were solved, how many of them with in-place pairs, and how many came out wrong."""
    solved = paired = wrong = 0
    for seed in range(n_seeds):
        graph = random_graph(seed, 3 + seed % 8) if seed % 3 else dense_graph(seed)
        if graph.subgraphs or graph.n_ops > MOST_OPS:
            continue
        for in_place in (True, False):
            problem = Problem(graph, in_place=in_place)
            solution = solve(problem, [problem.given_order()], SEARCH_EFFORTS["balanced"])
            least = tuple(least_peak(problem, space) for space in range(len(graph.spaces)))
            bounds = tuple(bound.peak_bytes for bound in solution.bounds)
            solved += 1
            paired += in_place and len(graph.in_place.values) > 0
            sound = all(bound <= best for bound, best in zip(bounds, least, strict=True))
            exact = solution.peaks == bounds == least or len(least) > 1
            wrong += not (sound and exact)
    return solved, paired, wrong


def main() -> None:
    """Check, write the section, and fail on a mismatch."""
    n_seeds = int(sys.argv[1]) if len(sys.argv) > 1 else 6000
    solved, paired, wrong = mismatches(n_seeds)
    text = f"{solved} problems, {paired} of them with in-place pairs: {wrong} mismatches."
    print(text)
    write_section("The search against all orders", f"python benchmarks/bench_all_orders.py {n_seeds}", text)
    if wrong:
        sys.exit(1)


if __name__ == "__main__":
    main()
