"""Temp bytes of fourteen training steps in JAX within budgets of 70, 50 and 40 %; against `jax.checkpoint`."""

import argparse
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count=8".strip()

import jax
import numpy as np
from jax_programs import PROGRAMS, Step, conv_stack, mlp_stack
from results import write_section

from lowtide.engine.planning.settings import PlanSettings, default_techniques
from lowtide.frameworks.jax.fitting.forms import unmodified_form
from lowtide.frameworks.jax.fitting.search import FitFound, FitSearch
from lowtide.frameworks.jax.flat.traced import trace
from lowtide.frameworks.jax.measure.compiled import schedulers
from lowtide.xla import schedule

SHARES = (70, 50, 40)
MIB = 2**20
SETTINGS = PlanSettings(techniques=default_techniques("100%"), effort="fast", addresses=False)


@dataclass(frozen=True)
class Row:
    """One program, measured."""

    text: str
    fits: int
    """Of the budgets."""
    worst: float
    """Largest difference of a result's element, over the largest of that result."""
    orders: tuple[float, ...]
    """The best order's peak over that of XLA's, under one model: of the step as it stands, then fitted."""


def difference(found: FitFound, leaves: list[object], expected: list[object]) -> float:
    """Return how far results are from the original's: the largest difference over the largest element, of each."""
    worst = 0.0
    for one, other in zip(found.best.executable(*leaves), expected, strict=True):
        mine, theirs = np.asarray(one, np.float64), np.asarray(other, np.float64)
        if not np.array_equal(mine, theirs):
            worst = max(worst, float(np.abs(mine - theirs).max() / max(np.abs(theirs).max(), 1e-30)))
    return worst


def how(found: FitFound) -> str:
    """Return in a word or two what a candidate is."""
    name = found.best.name.removesuffix(", scheduled for least memory")
    for long, short in (
        ("unmodified", "scheduler alone"),
        ("a scan in chunks", "chunks"),
        ("scans in chunks", "chunks"),
        ("scans saving", "saving"),
        (", held by ", ", held "),
    ):
        name = name.replace(long, short)
    return name


def seconds_of(executable: Any, leaves: list[object]) -> float:
    """Return the least time of five calls."""
    times: list[float] = []
    for _ in range(5):
        started = time.perf_counter()
        jax.block_until_ready(executable(*leaves))
        times.append(time.perf_counter() - started)
    return min(times)


def best_order(executable: Any) -> float:
    """Return the peak of the best order of a compiled module over that of XLA's own, under one memory model."""
    peaks = schedule(executable, "fast").peaks
    return min(peaks.values()) / peaks["given"]


def row(step: Step) -> Row:
    """Fit one program at every share."""
    started = time.perf_counter()
    traced = trace(step.function, step.arguments)
    search = FitSearch(traced, SETTINGS)
    leaves = jax.tree.leaves(step.arguments)
    expected = search.unmodified.executable(*leaves)
    untouched = search.unmodified.figures.temp_bytes
    model = unmodified_form(traced).peak_bytes
    before = seconds_of(search.unmodified.executable, leaves)
    cells: list[str] = []
    fits, worst = 0, 0.0
    orders = [best_order(search.unmodified.executable)]
    for share in SHARES:
        found = search.fit(untouched * share // 100)
        away = difference(found, leaves, expected)
        part = 100 * found.best.figures.temp_bytes / untouched
        slower = seconds_of(found.best.executable, leaves) / before
        cells.append(f"{part:.0f} %{'' if found.fits else ', over'} ({how(found)}; time {slower:.2f})")
        fits += found.fits
        worst = max(worst, away)
        orders.append(best_order(found.best.executable))
    values = "bits equal" if worst == 0 else f"within {worst:.0e}"
    seconds = time.perf_counter() - started
    figures = f"{untouched / MIB:.1f} | {model / MIB:.1f}"
    ratios = ", ".join(f"{ratio:.3f}" for ratio in orders)
    text = f"| {step.name} | {figures} | {' | '.join(cells)} | {values} | {ratios} | {seconds:.0f} |"
    print(text, flush=True)
    return Row(text, fits, worst, tuple(orders))


def checkpoint_rows() -> list[str]:
    """Return the rows of two stacks: plain, every block under `jax.checkpoint`, and fitted."""
    rows: list[str] = []
    stacks = (
        (partial(mlp_stack, batch=8192, hidden=256, norm=lambda x: x), 19),
        (partial(mlp_stack, batch=8192), 19),
        (conv_stack, 40),
    )
    for make, share in stacks:
        plain, checkpointed = make(), make(block=jax.checkpoint)
        traced = trace(plain.function, plain.arguments)
        search = FitSearch(traced, SETTINGS)
        untouched = search.unmodified.figures.temp_bytes
        found = search.fit(untouched * share // 100)
        theirs = [_temp_bytes(checkpointed, options) / MIB for options in schedulers("cpu")]
        figures = [untouched / MIB, *theirs, found.best.figures.temp_bytes / MIB]
        rows.append(f"| {plain.name} | {' | '.join(f'{figure:.1f}' for figure in figures)} |")
        print(rows[-1], flush=True)
    return rows


def _temp_bytes(step: Step, options: Mapping[str, str]) -> int:
    compiled = jax.jit(step.function).lower(*step.arguments).compile(compiler_options=dict(options))
    return compiled.memory_analysis().temp_size_in_bytes


def main() -> None:
    """Measure, print and, unless only some programs were asked for, write the section into RESULTS.md."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", action="append", choices=[make.__name__ for make in PROGRAMS], help="one program")
    only = parser.parse_args().only
    rows = [row(make()) for make in PROGRAMS if not only or make.__name__ in only]
    if only:
        return
    stacks = checkpoint_rows()
    met = sum(each.fits for each in rows)
    lines = [
        "Temp bytes of whole training steps (forward, backward, optimizer), in MiB, as XLA's compiler for the CPU",
        "gives them; per device for the two over a mesh of eight. Model: what lowtide predicts for the step in the",
        "order that it was traced in (of a step that `jax.jit` partitions: of all devices). Budgets are shares of the",
        "temp bytes of the step as it stands; a cell says what was reached, and how. Values: results against those of",
        "the step as it stands. Time: the least of five calls over that of the step as it stands, on a machine that",
        "others use, too. Held: the order of the plan is kept, by windows of so many kernels; chunks, saving: of its",
        "scans. Orders: the peak of lowtide's best order over that of XLA's own, both of the compiled module under one",
        "model, of the step as it stands and of the three that were fitted: never worse, better on "
        f"{sum(ratio < 1 for each in rows for ratio in each.orders)} of {sum(len(each.orders) for each in rows)}.",
        f"{met} of {len(rows) * len(SHARES)} budgets are met.",
        "",
        f"| step | XLA | model | {' | '.join(f'{share} %' for share in SHARES)} | values | orders | seconds |",
        f"|---|--:|--:|{'---|' * len(SHARES)}---|---|--:|",
        *(each.text for each in rows),
        "",
        "Beside `jax.checkpoint` around every block (XLA's two schedulers for the CPU), temp bytes in MiB:",
        "",
        "| stack | plain | checkpoint, default | checkpoint, least memory | `lowtide.jax.fit` |",
        "|---|--:|--:|--:|--:|",
        *stacks,
    ]
    write_section("JAX", "python benchmarks/bench_jax.py", "\n".join(lines))


if __name__ == "__main__":
    main()
