"""Extra cost of recomputation within budgets, with its proven gap: training graphs at six budgets, and large ones."""

import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median

from generate import training_step
from results import write_section
from sample_graphs import chosen_graphs

import lowtide
from lowtide.analysis import Problem
from lowtide.costs import carries_costs, price
from lowtide.effort import RECOMPUTE_EFFORTS
from lowtide.graph import Graph
from lowtide.recompute import BudgetSearch, Drops, Program, RecomputeResult, plan_curve
from lowtide.recompute.choose_drops import drop_until_it_fits
from lowtide.schedule import make_candidate

PERCENTS = (90, 70, 50, 40, 30, 20)
MAIN = (90, 70, 50, 40)
TIGHT = (30, 20)
STEP = (70, 50)
LARGE = (5_000, 10_000)
CURVE_OPS = 4_000


def training_graphs(paths: list[Path]) -> Iterator[tuple[str, Graph]]:
    """Yield the graphs of training steps: forward and backward pass, some with updates."""
    for path in paths:
        name = path.name.removesuffix(".gz").removesuffix(".graph.json")
        if name.startswith("budget_") or name.endswith((".joint", ".step")):
            yield name, lowtide.read(path)


def base_program(graph: Graph) -> Program:
    """Return the best order found quickly, priced by the graph's own costs or else the eager profile."""
    order = make_candidate("search", graph, in_place=True, effort="fast").plan.order()
    profile = "given" if carries_costs(graph) else "eager"
    return Program(Problem(graph), order, price(graph, profile).seconds)


def timed(search: BudgetSearch, budget: int, *, exact: bool) -> tuple[RecomputeResult, float]:
    """Return a result and its processor seconds."""
    started = time.process_time()
    result = search.plan(budget, RECOMPUTE_EFFORTS["balanced"], exact=exact)
    return result, time.process_time() - started


class Cell:
    """One graph at one budget: with the solver, without it, and by greedy choice of cuts alone."""

    def __init__(self, name: str, n_ops: int, percent: int, search: BudgetSearch, budget: int) -> None:
        self.name, self.n_ops, self.percent = name, n_ops, percent
        self.result, self.seconds = timed(search, budget, exact=True)
        self.plain, _ = timed(search, budget, exact=False)
        self.greedy = greedy_cost(search, budget)

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
        """Whether no proof says that no plan fits."""
        return self.result.status != "infeasible"

    @property
    def closed(self) -> bool:
        """Whether the cost is proven to be within one percent of the least."""
        return self.result.fits and self.result.gap <= 0.01

    @property
    def better_than_greedy(self) -> bool:
        """Whether greedy choice alone finds no plan, or a dearer one."""
        return self.result.fits and self.result.extra_cost < self.greedy


def greedy_cost(search: BudgetSearch, budget: int) -> float:
    """Return what greedy choice alone costs extra, infinite where it finds no plan."""
    limit = RECOMPUTE_EFFORTS["balanced"].play_work
    fits, drops = drop_until_it_fits(search.program, Drops(), budget, limit)
    return search.program.execute(drops).extra_cost if fits else float("inf")


def summary(cells: list[Cell]) -> list[str]:
    """Say in sentences what the table holds."""
    main = [cell for cell in cells if cell.possible and cell.percent in MAIN and cell.n_ops <= 5_200]
    tight = [cell for cell in cells if cell.possible and cell.percent in TIGHT]
    step = [cell for cell in cells if cell.possible and cell.percent in STEP and cell.name.endswith(".step")]
    real = [cell for cell in main if not cell.name.startswith("generated")]
    plain = sum(cell.plain.fits and cell.plain.gap <= 0.01 for cell in main)
    found = [cell for cell in cells if cell.result.fits]
    missing = [f"{cell.name} at {cell.percent}%" for cell in cells if cell.possible and not cell.result.fits]
    return [
        "Budgets are percentages of the peak of the best order found; cells: extra cost over the cost of one run of "
        "every op (costs: the graph's own, else the eager profile), gap to its bound for that order, CPU seconds. "
        '"none can" is below the floor or proven infeasible; what follows counts the other cells.',
        "",
        f"- At {', '.join(f'{percent}%' for percent in MAIN)}, up to 5,000 ops: a plan in "
        f"{sum(cell.result.fits for cell in main)} of {len(main)} cells, gap at most 1% in "
        f"{sum(cell.closed for cell in main)} (without the solver in {plain}), at most 10 s in "
        f"{sum(cell.seconds <= 10 for cell in main)}, slowest {max(cell.seconds for cell in main):.1f} s, median "
        f"{median(cell.seconds for cell in main):.1f} s. Of programs that are not generated: "
        f"{sum(cell.closed for cell in real)} of {len(real)}.",
        f"- At {', '.join(f'{percent}%' for percent in TIGHT)}: a plan in {sum(cell.result.fits for cell in tight)} of "
        f"{len(tight)} cells, cheaper than greedy choice alone in {sum(cell.better_than_greedy for cell in tight)}, "
        f"which finds one in {sum(cell.greedy < float('inf') for cell in tight)}.",
        f"- Whole steps at {', '.join(f'{percent}%' for percent in STEP)}: a plan in "
        f"{sum(cell.result.fits for cell in step)} of {len(step)} cells; its peak is within the budget, so below that "
        "of the best order alone.",
        f"- All cells: {len(found)} plans, {sum(cell.better_than_greedy for cell in found)} cheaper than by greedy "
        f"choice alone. No plan found, and no proof that there is none: {', '.join(missing) or 'nowhere'}.",
    ]


def main() -> None:
    """Measure, print, and write the section into RESULTS.md."""
    _, paths = chosen_graphs(__doc__)
    header = ["graph", "ops", "floor", *(f"{percent}%" for percent in PERCENTS)]
    lines = ["| " + " | ".join(header) + " |", "|---" + "|--:" * (len(header) - 1) + "|"]
    cells: list[Cell] = []
    named = [*training_graphs(paths), *((f"generated, {n}", training_step(n)) for n in LARGE)]
    for name, graph in named:
        search = BudgetSearch(base_program(graph))
        peak = search.untouched.peak_bytes
        row = [Cell(name, graph.n_ops, percent, search, peak * percent // 100) for percent in PERCENTS]
        cells += row
        written = [name, f"{graph.n_ops:,}", f"{search.floor.peak_bytes / peak:.0%}", *map(str, row)]
        lines.append("| " + " | ".join(written) + " |")
        print(lines[-1], flush=True)

    program = base_program(training_step(CURVE_OPS))
    started = time.process_time()
    curve = plan_curve(program.problem, program.order, cost=program.cost)
    seconds = time.process_time() - started
    most = curve.points[0].budget_bytes
    points = ", ".join(
        f"{point.peak_bytes / most:.0%} for {point.extra_cost / point.base_cost:.1%}"
        if point.fits
        else f"none at {point.budget_bytes / most:.0%}"
        for point in curve.points
    )
    told = [
        *summary(cells),
        f"- A curve of {len(curve.points)} budgets on {program.problem.graph.n_ops:,} generated ops takes "
        f"{seconds:.0f} s, peak and extra cost: {points}; knee at point {curve.knee}.",
        "",
    ]
    print("\n".join(told))
    write_section("Recomputation within a budget", "python benchmarks/bench_budget.py", "\n".join([*told, *lines]))


if __name__ == "__main__":
    main()
