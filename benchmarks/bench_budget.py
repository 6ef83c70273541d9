"""Extra cost of recomputation within budgets, with its proven gap: training graphs at six budgets, and large ones."""

import time
from collections.abc import Iterator
from pathlib import Path

from generate import training_step
from results import write_section
from sample_graphs import chosen_graphs

import lowtide
from lowtide.analysis import Problem
from lowtide.costs import carries_costs, price
from lowtide.graph import Graph
from lowtide.recompute import BudgetSearch, Program, RecomputeResult, plan_curve
from lowtide.recompute.effort import EFFORTS
from lowtide.schedule import make_candidate

PERCENTS = (90, 70, 50, 40, 30, 20)
MAIN = (90, 70, 50, 40)
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
    result = search.plan(budget, EFFORTS["balanced"], exact=exact)
    return result, time.process_time() - started


def cell(result: RecomputeResult, seconds: float) -> str:
    """Write one cell: extra cost in percent of the base cost, gap to the bound, seconds."""
    if result.status == "infeasible":
        return "none can"
    if not result.fits:
        return f"none found ({seconds:.1f} s)"
    return f"{result.extra_cost / result.base_cost:.2%} (gap {result.gap:.2%}, {seconds:.1f} s)"


def main() -> None:
    """Measure, print, and write the section into RESULTS.md."""
    _, paths = chosen_graphs(__doc__)
    header = ["graph", "ops", "floor", *(f"{percent}%" for percent in PERCENTS)]
    lines = ["| " + " | ".join(header) + " |", "|---" + "|--:" * (len(header) - 1) + "|"]
    closed = {True: 0, False: 0}
    fitting, slowest, better_than_plain = 0, 0.0, [0, 0]
    named = [*training_graphs(paths), *((f"generated, {n}", training_step(n)) for n in LARGE)]
    for name, graph in named:
        search = BudgetSearch(base_program(graph))
        peak = search.untouched.peak_bytes
        cells: list[str] = []
        for percent in PERCENTS:
            result, seconds = timed(search, peak * percent // 100, exact=True)
            plain, _ = timed(search, peak * percent // 100, exact=False)
            cells.append(cell(result, seconds))
            if percent in MAIN and result.status != "infeasible" and graph.n_ops <= 5_200:
                fitting += 1
                slowest = max(slowest, seconds)
                for exact, one in ((True, result), (False, plain)):
                    closed[exact] += one.fits and one.gap <= 0.01
            if result.fits:
                better_than_plain[0] += 1
                better_than_plain[1] += not plain.fits or result.extra_cost < plain.extra_cost
        row = [name, f"{graph.n_ops:,}", f"{search.floor.peak_bytes / peak:.0%}", *cells]
        lines.append("| " + " | ".join(row) + " |")
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
    summary = [
        "Budgets are percentages of the peak of the best order found; cells: extra cost over the cost of one run of "
        "every op (costs: the graph's own, else the eager profile), gap to its bound for that order, CPU seconds. "
        '"none can" is below the floor or proven infeasible.',
        "",
        f"At {', '.join(f'{percent}%' for percent in MAIN)}, up to 5,000 ops: gap at most 1% in {closed[True]} of "
        f"{fitting} cells that are not infeasible, slowest {slowest:.1f} s; without the solver in {closed[False]}. "
        f"The solver found a cheaper plan in {better_than_plain[1]} of {better_than_plain[0]} cells.",
        f"A curve of {len(curve.points)} budgets on {program.problem.graph.n_ops:,} generated ops takes "
        f"{seconds:.0f} s, peak and extra cost: {points}; knee at point {curve.knee}.",
        "",
    ]
    print("\n".join(summary))
    write_section("Recomputation within a budget", "python benchmarks/bench_budget.py", "\n".join([*summary, *lines]))


if __name__ == "__main__":
    main()
