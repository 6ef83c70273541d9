"""Extra cost of recomputation within budgets, with its proven gap: training graphs at three budgets, and large ones.

At effort "fast", one graph a network and those of up to 2,000 ops, so that all of it stays within some minutes;
generated steps at the default effort.
"""

import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median

from generate import training_step
from results import write_section
from sample_graphs import chosen_graphs

import lowtide
from lowtide.core.effort import DEFAULT_EFFORT, RECOMPUTE_EFFORTS, EffortName
from lowtide.engine.analysis import Problem
from lowtide.engine.costs import carries_costs, price
from lowtide.engine.graph import Graph
from lowtide.engine.recompute import ComposeSettings, Drops, OrderedProgram, compose, floor_of, least_bytes
from lowtide.engine.recompute.choose_drops import drop_until_it_fits
from lowtide.engine.schedule import make_candidate

PERCENTS = (70, 50, 30)
LARGE = (5_000, 10_000)
LARGE_PERCENTS = (70, 50)
MOST_OPS = 2_000


def training_graphs(paths: list[Path]) -> Iterator[tuple[str, Graph]]:
    """Yield one graph of a training step a network: with the updates, or else of forward and backward pass."""
    names = {path.name.removesuffix(".gz").removesuffix(".graph.json"): path for path in paths}
    for name, path in names.items():
        has_step = name.removesuffix(".joint") + ".step" in names
        if name.startswith("budget_") or name.endswith(".step") or (name.endswith(".joint") and not has_step):
            yield name, lowtide.read(path)


def base_program(graph: Graph) -> OrderedProgram:
    """Return the best order found quickly, priced by the graph's own costs or else the eager profile."""
    order = make_candidate("search", graph, in_place=True, effort="fast").plan.order()
    profile = "given" if carries_costs(graph) else "eager"
    return OrderedProgram(Problem(graph), order, price(graph, profile).seconds)


class Cell:
    """One graph at one budget: planned as `minimize` does, and by greedy choice of drops alone."""

    def __init__(self, name: str, percent: int, program: OrderedProgram, peak: int, effort: EffortName) -> None:
        self.name, self.percent = name, percent
        orders = [("given", program.problem.given_order()), ("search", program.order)]
        budget = peak * percent // 100
        started = time.process_time()
        self.result = compose(program.problem, orders, budget, ComposeSettings(cost=program.cost, effort=effort)).result
        self.seconds = time.process_time() - started
        self.greedy = greedy_cost(program, budget) if self.possible and effort == "fast" else float("inf")

    def __str__(self) -> str:
        """Extra cost in percent of the base cost, gap to the bound, seconds."""
        result = self.result
        if not self.possible:
            return "none can"
        if not result.fits:
            return f"none found ({self.seconds:.1f} s)"
        return f"{result.extra_cost / result.base_cost:.2%} (gap {result.gap:.2%}, {self.seconds:.1f} s)"

    @property
    def possible(self) -> bool:
        """Whether no proof says that no plan with first runs in the best order's fits."""
        return self.result.status != "infeasible"

    @property
    def closed(self) -> bool:
        """Whether the cost is proven to be within one percent of the least of its order."""
        return self.result.fits and self.result.gap <= 0.01

    @property
    def better_than_greedy(self) -> bool:
        """Whether greedy choice alone finds no plan, or a dearer one."""
        return self.result.fits and self.result.extra_cost < self.greedy


def greedy_cost(program: OrderedProgram, budget: int) -> float:
    """Return what greedy choice alone costs extra, infinite where it finds no plan."""
    fits, drops = drop_until_it_fits(program, Drops(), budget, RECOMPUTE_EFFORTS["fast"].play_work)
    return program.execute(drops).extra_cost if fits else float("inf")


def summary(cells: list[Cell], large: list[Cell]) -> list[str]:
    """Say in sentences what the table holds."""
    possible = [cell for cell in cells if cell.possible]
    found = [cell for cell in possible if cell.result.fits]
    missing = [f"{cell.name} at {cell.percent}%" for cell in possible if not cell.result.fits]
    return [
        "Budgets are percentages of the peak of the best order found; cells: extra cost over the cost of one run of "
        "every op (costs: the graph's own, else the eager profile), gap to the bound for the plan's own order of first "
        'runs, CPU seconds. "none can": proven for the base order. Sample graphs at effort "fast", up to '
        f'{MOST_OPS:,} ops; generated ones at "{DEFAULT_EFFORT}".',
        "",
        f"- Sample graphs: a plan in {len(found)} of {len(possible)} cells, gap at most 1% in "
        f"{sum(cell.closed for cell in found)}, cheaper than by greedy choice alone in "
        f"{sum(cell.better_than_greedy for cell in found)}; slowest {max(cell.seconds for cell in cells):.1f} s, "
        f"median {median(cell.seconds for cell in cells):.1f} s. No plan found, and no proof that there is none: "
        f"{', '.join(missing) or 'nowhere'}.",
        f"- Generated transformer steps of {' and '.join(f'{n:,}' for n in LARGE)} ops: gap at most "
        f"{max(cell.result.gap if cell.result.fits else 1.0 for cell in large):.2%}, at most "
        f"{max(cell.seconds for cell in large):.1f} s.",
        "",
    ]


def main() -> None:
    """Measure, print, and write the section into RESULTS.md."""
    _, paths = chosen_graphs(__doc__)
    header = ["graph", "ops", "floor", *(f"{percent}%" for percent in PERCENTS)]
    lines = ["| " + " | ".join(header) + " |", "|---" + "|--:" * (len(header) - 1) + "|"]

    def measure(name: str, graph: Graph, percents: tuple[int, ...], effort: EffortName) -> list[Cell]:
        program = base_program(graph)
        peak = int(program.problem.evaluate(program.order).peaks[0])
        row = [Cell(name, percent, program, peak, effort) for percent in percents]
        blank = [""] * (len(PERCENTS) - len(row))
        written = [
            name,
            f"{graph.n_ops:,}",
            f"{least_bytes(program, floor_of(program)) / peak:.0%}",
            *map(str, row),
            *blank,
        ]
        lines.append("| " + " | ".join(written) + " |")
        print(lines[-1], flush=True)
        return row

    cells = [
        cell
        for name, graph in training_graphs(paths)
        if graph.n_ops <= MOST_OPS
        for cell in measure(name, graph, PERCENTS, "fast")
    ]
    large = [
        cell
        for n_ops in LARGE
        for cell in measure(f"generated, {n_ops}", training_step(n_ops), LARGE_PERCENTS, DEFAULT_EFFORT)
    ]
    told = summary(cells, large)
    print("\n".join(told))
    write_section("Recomputation within a budget", "python benchmarks/bench_budget.py", "\n".join([*told, *lines]))


if __name__ == "__main__":
    main()
