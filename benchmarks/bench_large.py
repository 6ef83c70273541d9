"""The search on large generated graphs: a tree, a checkpointed training step of 2,000 layers, a million ops."""

import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path

from generate import training_step
from results import table_head, write_section

sys.path.append(str(Path(__file__).parents[1]))  # Liu's algorithm and the random tree are the tests' oracles

from lowtide.engine.analysis import Problem
from lowtide.engine.graph import Graph
from lowtide.engine.schedule.search import Search
from tests.oracles.liu import liu_peak
from tests.oracles.random_trees import random_tree

TREE_OPS = 4_113
CHECKPOINTED_OPS = 88_002  # 2,000 layers
MILLION = 1_000_000


def measure(make: Callable[[], Graph]) -> tuple[str, int]:
    """Search a graph; returns the row of the table and the peak. Seconds include deriving the graph's structure."""
    started = time.perf_counter()
    graph = make()
    generated = time.perf_counter() - started
    started = time.perf_counter()
    problem = Problem(graph)
    given = int(problem.evaluate(problem.given_order()).peaks.sum())
    solution = Search().solve(problem, progress=lambda stage: print(f"  {stage}", file=sys.stderr, flush=True))
    seconds = time.perf_counter() - started
    peak, bound = sum(solution.peaks), sum(bound.peak_bytes for bound in solution.bounds)
    gap = "proven" if peak == bound else f"{peak / bound - 1:.4%}"
    cells = (graph.name, f"{graph.n_ops:,}", f"{given:,}", f"{peak:,}", f"{bound:,}", gap)
    row = f"| {' | '.join(cells)} | {generated:.1f} | {seconds:.2f} |"
    print(row, flush=True)
    return row, peak


def main() -> None:
    """Measure, print, and write the section into RESULTS.md."""
    head = ["graph", "ops", "given, bytes", "search, bytes", "bound, bytes", "gap", "generated, s", "search, s"]
    table = table_head(head)
    print("\n".join(table), flush=True)
    tree, parents = random_tree(0, TREE_OPS)
    row, peak = measure(lambda: tree)
    least = liu_peak(parents, tree.sizes.tolist(), tree.scratch.tolist())
    if peak != least:
        sys.exit(f"the tree's peak is {peak:,} bytes, Liu's algorithm gives {least:,}")
    table.append(row)
    table.append(measure(lambda: training_step(CHECKPOINTED_OPS, checkpointed=True))[0])
    table.append(measure(lambda: training_step(MILLION))[0])
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    lead = (
        "Default effort, one run; seconds of the search include deriving dependencies and all orders it starts from. "
    )
    lead += f"Liu's algorithm, written plainly, gives {least:,} bytes for the tree as well. "
    lead += f"Peak memory of the process, graphs included: {memory:.2f} GiB."
    write_section("The search on large graphs", "python benchmarks/bench_large.py", "\n".join([lead, "", *table]))


if __name__ == "__main__":
    main()
