"""Inductor's own orders (torch._inductor.memory) against lowtide's, on the same graphs in the same process."""

import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np
from results import table_head, write_section
from sample_graphs import SAMPLES, chosen_graphs

sys.path.append(str(Path(__file__).parents[1]))  # the bridge to Inductor is one of the tests' oracles

from lowtide.engine.analysis import Problem
from lowtide.engine.graph.file_format import read_graph_file
from lowtide.engine.schedule import scheduler
from tests.oracles.inductor import Inductor

ORDERS = ("lpmf", "bfs", "dfs", "inductor-best")
RUNS = 3

T = TypeVar("T")


@dataclass(frozen=True)
class Row:
    """Seconds and peak bytes on one graph, per order: Inductor's, then lowtide's."""

    graph: str
    n_ops: int
    seconds: dict[str, tuple[float, float]]
    peaks: dict[str, tuple[int, int]]
    search_seconds: float
    search_peak: int

    def ratio(self, name: str) -> float:
        """How many times as long Inductor takes."""
        theirs, ours = self.seconds[name]
        return theirs / ours

    def line(self) -> str:
        """The row of the table."""
        cells = [self.graph, f"{self.n_ops:,}"]
        for name in ORDERS:
            theirs, ours = self.seconds[name]
            cells.append(f"{theirs * 1e3:.2f} / {ours * 1e3:.3f} = {theirs / ours:.0f}x")
        best = self.peaks["inductor-best"][0]
        cells += [f"{best:,}", f"{self.search_peak / best:.4f}" if best else "1.0000", f"{self.search_seconds:.3f}"]
        return f"| {' | '.join(cells)} |"


def timed(call: Callable[[], T]) -> tuple[float, T]:
    """Return the least seconds of several runs, and the result."""
    seconds: list[float] = []
    for _ in range(RUNS):
        started = time.perf_counter()
        result = call()
        seconds.append(time.perf_counter() - started)
    return min(seconds), result


def measure(path: Path) -> Row:
    """Run each order both ways on the graph of a file; in-place pairs are left out, Inductor knows none."""
    problem = Problem(read_graph_file(path), in_place=False)
    inductor = Inductor(problem)
    given = problem.given_order().tolist()

    def theirs_best() -> list[int]:
        return min((given, inductor.lpmf(), inductor.bfs(), inductor.dfs()), key=inductor.peak)

    theirs: dict[str, Callable[[], list[int]]] = {"lpmf": inductor.lpmf, "bfs": inductor.bfs, "dfs": inductor.dfs}
    theirs["inductor-best"] = theirs_best
    problem.evaluate(problem.given_order())  # both sides start with their own form of the graph ready

    def peak(order: Sequence[int]) -> int:
        return int(problem.evaluate(np.array(order, np.int32)).peaks.sum())

    seconds: dict[str, tuple[float, float]] = {}
    peaks: dict[str, tuple[int, int]] = {}
    for name, call in theirs.items():
        chosen = scheduler(name)
        their_seconds, their_order = timed(call)
        our_seconds, our_order = timed(lambda chosen=chosen: chosen.order(problem))
        seconds[name] = their_seconds, our_seconds
        peaks[name] = peak(their_order), peak(our_order.tolist())
    started = time.perf_counter()
    found = scheduler("search").order(problem)
    return Row(
        graph=path.name.removesuffix(".gz").removesuffix(".graph.json"),
        n_ops=problem.graph.n_ops,
        seconds=seconds,
        peaks=peaks,
        search_seconds=time.perf_counter() - started,
        search_peak=peak(found.tolist()),
    )


def summary(rows: list[Row]) -> list[str]:
    """Say how the targets are met."""
    lines: list[str] = []
    for name in ORDERS:
        ratios = sorted(row.ratio(name) for row in rows)
        theirs, ours = (sum(row.seconds[name][side] for row in rows) for side in (0, 1))
        above = sum(row.peaks[name][1] > row.peaks[name][0] for row in rows)
        lines.append(
            f"- {name}: {theirs / ours:.0f}x faster over all graphs (least {ratios[0]:.0f}x, median "
            f"{ratios[len(ratios) // 2]:.0f}x); peak above Inductor's on {above} of {len(rows)} graphs"
        )
    above = sum(row.search_peak > min(theirs for theirs, _ in row.peaks.values()) for row in rows)
    below = sum(row.search_peak < min(theirs for theirs, _ in row.peaks.values()) for row in rows)
    slower = sum(row.search_seconds > row.seconds["inductor-best"][0] for row in rows)
    lines.append(
        f"- search: above the best of Inductor's on {above} graphs, below it on {below}, "
        f"slower than Inductor's best-of on {slower}"
    )
    return lines


def main() -> None:
    """Measure, print, and write the section into RESULTS.md when the graphs are the project's own."""
    folder, paths = chosen_graphs(__doc__)
    sys.setrecursionlimit(1_000_000)  # Inductor's depth-first order recurses
    head = ["graph", "ops", *ORDERS, "Inductor's best peak", "search / best", "search, s"]
    table = table_head(head)
    print("\n".join(table), flush=True)
    rows: list[Row] = []
    for path in paths:
        rows.append(measure(path))
        print(rows[-1].line(), flush=True)
    figures = summary(rows)
    print("\n".join(figures))
    if folder.resolve() == SAMPLES.resolve():
        lead = f"Milliseconds, Inductor's / lowtide's, least of {RUNS} runs; on both sides the graph is ready in the "
        lead += "form the order takes. Peaks by lowtide's simulator, without in-place pairs, in bytes."
        text = [lead, "", *figures, "", *table, *(row.line() for row in rows)]
        write_section("Inductor's own functions", "python benchmarks/bench_torch_orders.py", "\n".join(text))


if __name__ == "__main__":
    main()
