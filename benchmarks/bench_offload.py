"""Slow-down within budgets with recomputation and offload together, for several speeds of the link to the host."""

import time

from results import write_section
from sample_graphs import chosen_graphs

import lowtide
from lowtide.engine.analysis import Problem
from lowtide.engine.costs import carries_costs, price
from lowtide.engine.graph import Graph
from lowtide.engine.offload import OffloadResult, plan_within_budget, with_host_space
from lowtide.engine.schedule import make_candidate

NAMES = ("budget_gpt2_12.train", "budget_resnet50_d.train")
PERCENTS = (70, 50, 40)
GIGABYTES_PER_SECOND = (0, 12, 25, 50)

LEAD = (
    "Budgets are in percent of the peak of an order found quickly, which is the base order of all plans. The "
    "slow-down is that of the plan's timeline, in percent of the base time: what runs again, and what waits for "
    "copies. Hidden is the transfer time during which compute is busy, of both streams together. Bound: no plan in "
    "that order, by whatever method, is slower by less. At 0 GB/s nothing is offloaded, so that these rows are "
    "recomputation alone."
)


def row(name: str, percent: int, speed: int, result: OffloadResult, seconds: float) -> str:
    """Write one row: parts in percent of the base time, the gap of the slow-down."""
    parts = (result.extra_cost, result.rerun_seconds, result.stall_seconds, result.hidden_seconds)
    figures = [f"{part / result.base_cost:.2%}" for part in (*parts, result.extra_cost_bound)]
    fits = "" if result.fits else " (does not fit)"
    cells = [
        name,
        f"{percent}%",
        str(speed),
        f"{result.base_cost * 1000:.1f} ms",
        *figures,
        f"{result.gap:.1%}",
        f"{seconds:.1f}{fits}",
    ]
    return "| " + " | ".join(cells) + " |"


def plans(name: str, graph: Graph) -> list[str]:
    """Plan one graph for all budgets and speeds; budgets are of the peak of the best order found quickly."""
    order = make_candidate("search", graph, in_place=True, effort="fast").plan.order()
    peak = int(Problem(graph).evaluate(order).peaks[0])
    rows: list[str] = []
    for percent in PERCENTS:
        for speed in GIGABYTES_PER_SECOND:
            linked = with_host_space(graph, speed * 1e9)
            prices = price(linked, "given" if carries_costs(graph) else "eager")
            started = time.process_time()
            result = plan_within_budget(Problem(linked), order, peak * percent // 100, prices=prices)
            rows.append(row(name, percent, speed, result, time.process_time() - started))
            print(rows[-1], flush=True)
    return rows


def main() -> None:
    """Measure, print, and write the section into RESULTS.md."""
    _, paths = chosen_graphs(__doc__)
    header = ["graph", "budget", "GB/s each way", "base"]
    header += ["slow-down", "run again", "waits", "hidden", "bound", "gap", "CPU seconds"]
    lines = ["| " + " | ".join(header) + " |", "|---" + "|--:" * (len(header) - 1) + "|"]
    for path in paths:
        name = path.name.removesuffix(".gz").removesuffix(".graph.json")
        if name in NAMES:
            lines += plans(name, lowtide.read(path))
            text = "\n".join([LEAD, "", *lines])
            write_section("Recomputation and offload together", "python benchmarks/bench_offload.py", text)


if __name__ == "__main__":
    main()
