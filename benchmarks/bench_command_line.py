"""Seconds and memory of the whole command line on a graph of a million ops, and on one op with 100,000 inputs."""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path

from generate import training_step
from results import write_section

from lowtide.engine.graph import Graph, GraphBuilder, Lifetime, write_graph_file

OPS, INPUTS = 1_000_000, 100_000


def wide() -> Graph:
    """Build one op that reads 100,000 donated inputs."""
    builder = GraphBuilder(f"one op with {INPUTS:,} inputs")
    inputs = [builder.add_buffer(f"input {place}", 4, Lifetime.DONATED) for place in range(INPUTS)]
    builder.add_op("sum", "sum", reads=inputs, writes=[builder.add_buffer("out", 4, Lifetime.OUTPUT)])
    return builder.build()


def write(make: Callable[[], Graph], path: Path) -> str:
    """Write a graph; returns its name."""
    graph = make()
    write_graph_file(graph, path)
    return graph.name


def measure(make: Callable[[], Graph], folder: Path) -> list[str]:
    """Run `lowtide plan` and `lowtide verify` on a graph; returns the rows of the table."""
    given, plan = folder / "given.graph.json", folder / "made.plan.json"
    # Another process makes the graph: what this one holds would count as the commands' memory.
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        name = pool.submit(write, make, given).result()
    rows: list[str] = []
    lowtide = str(Path(sys.executable).with_name("lowtide"))
    for verb, arguments in (("plan", [str(given), "-o", str(plan)]), ("verify", [str(plan), str(given)])):
        started = time.perf_counter()
        process = subprocess.Popen([lowtide, verb, *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        _, status, used = os.wait4(process.pid, 0)
        seconds, process.returncode = time.perf_counter() - started, os.waitstatus_to_exitcode(status)
        assert process.returncode == 0
        cpu, gib = used.ru_utime + used.ru_stime, used.ru_maxrss / 2**20
        rows.append(f"| {name} | {verb} | {seconds:.1f} | {cpu:.1f} | {gib:.2f} |")
        print(rows[-1], flush=True)
    return rows


def main() -> None:
    """Measure both graphs and write the section."""
    started = time.perf_counter()
    subprocess.run([sys.executable, "-c", "import lowtide.cli.plan"], check=True)
    loading = time.perf_counter() - started
    lines = [
        "Reading, planning, verifying and writing count for `plan`; reading and verifying for `verify`. Files are not",
        f"compressed. Loading the command alone takes {loading:.1f} s of each.",
        "",
        "| graph | verb | seconds | CPU seconds | memory, GiB |",
        "|---|---|--:|--:|--:|",
    ]
    with tempfile.TemporaryDirectory() as folder:
        for make in (wide, partial(training_step, OPS)):
            lines += measure(make, Path(folder))
    write_section("The whole command line on large graphs", "python benchmarks/bench_command_line.py", "\n".join(lines))


if __name__ == "__main__":
    main()
