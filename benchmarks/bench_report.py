"""How long the page of a report takes to write and, in a browser, to open: a training step with 500,000 buffers."""

import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from browser import find_browser
from generate import training_step
from results import write_section

from lowtide import minimize
from lowtide.engine.graph import Graph
from lowtide.reporting.page.facts import Facts
from lowtide.reporting.page.write import page

SIZES = (5_000, 50_000, 500_000)
OPENED = 5


def step_with_buffers(n_buffers: int) -> Graph:
    """Return a generated step with at least so many buffers."""
    small = training_step(1000)
    return training_step(int(n_buffers * small.n_ops / small.n_buffers) + 200)


def milliseconds_to_open(path: Path, browser: str) -> float:
    """Return the least of several openings: from the start of navigation until everything is drawn."""
    flags = ["--no-sandbox", "--disable-gpu", "--headless", "--dump-dom"]
    taken: list[float] = []
    for _ in range(OPENED):
        done = subprocess.run([browser, *flags, path.as_uri()], capture_output=True, text=True, check=True, timeout=120)
        found = re.search(r'data-ready="(\d+)"', done.stdout)
        if found is None:
            raise SystemExit("the page did not say that it is drawn")
        taken.append(float(found[1]))
    return min(taken)


def row(n_buffers: int, browser: str) -> str:
    """Return the row of one size."""
    graph = step_with_buffers(n_buffers)
    plan = minimize(graph, effort="fast").plan
    started = time.process_time()
    content = page(Facts.of(graph, plan))
    seconds = time.process_time() - started
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "report.html"
        path.write_bytes(content)
        opened = milliseconds_to_open(path, browser)
    return f"| {graph.n_buffers:,} | {graph.n_ops:,} | {seconds:.1f} | {len(content) / 1e6:.1f} | {opened / 1000:.2f} |"


def main() -> None:
    """Write the section."""
    browser = find_browser()
    if browser is None:
        sys.exit("no Chromium is installed; install chromium-headless-shell")
    rows = [row(size, browser) for size in SIZES]
    write_section(
        "The page of a report",
        "python benchmarks/bench_report.py",
        "\n".join(
            [
                "Generated training steps, planned with little effort. Writing is processor time on one core; opening",
                f"is from the start of navigation until all is drawn, the least of {OPENED}, in headless Chromium.",
                "",
                "| buffers | ops | seconds to write | MB | seconds to open |",
                "|---:|---:|---:|---:|---:|",
                *rows,
            ]
        ),
    )


if __name__ == "__main__":
    main()
