"""Seconds and memory of every order on generated graphs of a million ops: a training step, and random programs."""

import argparse
import resource
import time

from generate import random_program, training_step
from results import write_section

from lowtide.engine.analysis import Problem
from lowtide.engine.graph import Graph
from lowtide.engine.schedule import scheduler, scheduler_names

DEFAULT_OPS = 1_000_000


def measure(graph: Graph, generated: float) -> list[str]:
    """Return the lines of one graph's table; `generated` is what building it took, in seconds."""
    started = time.perf_counter()
    problem = Problem(graph)
    given = int(problem.evaluate(problem.given_order()).peaks.sum())
    prepared = time.perf_counter() - started
    lines = [
        f"### {graph.name}",
        "",
        f"{graph.n_ops:,} ops, {graph.n_buffers:,} buffers, {len(graph.structure.predecessors.values):,} dependencies; "
        f"generated in {generated:.1f} s, structure derived and program order evaluated in {prepared:.1f} s.",
        "",
        "| order | seconds | CPU seconds | peak, GiB | of the given order |",
        "|---|--:|--:|--:|--:|",
    ]
    for name in (name for name in scheduler_names() if name != "search"):  # no order of one pass
        chosen = scheduler(name)
        started, cpu_started = time.perf_counter(), time.process_time()
        order = chosen.order(problem)
        seconds, cpu_seconds = time.perf_counter() - started, time.process_time() - cpu_started
        peak = int(problem.evaluate(order).peaks.sum())
        lines.append(f"| {name} | {seconds:.2f} | {cpu_seconds:.2f} | {peak / 2**30:,.2f} | {peak / given:.3f} |")
    print("\n".join(lines), flush=True)
    return [*lines, ""]


def main() -> None:
    """Measure, print, and write the section into RESULTS.md when the graphs have the full million ops."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ops", type=int, default=DEFAULT_OPS)
    n_ops: int = parser.parse_args().ops

    lines = [
        "Seconds of one run; evaluating the result is not counted. CPU seconds leave out the machine's other work.",
        "",
    ]
    for make in (
        lambda: training_step(n_ops),
        lambda: random_program(n_ops, recent=100),
        lambda: random_program(n_ops, recent=n_ops),
    ):
        started = time.perf_counter()
        graph = make()
        lines += measure(graph, time.perf_counter() - started)
    peak_memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    lines.append(f"Peak memory of the process, graphs included: {peak_memory:.2f} GiB.")
    print(lines[-1])
    if n_ops == DEFAULT_OPS:
        write_section("Orders on a million ops", "python benchmarks/bench_million_ops.py", "\n".join(lines))


if __name__ == "__main__":
    main()
