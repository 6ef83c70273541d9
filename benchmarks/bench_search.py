"""The search against the given order and the orders of five systems, on every graph of a folder."""

import sys
from dataclasses import dataclass
from pathlib import Path

from results import table_head, write_section
from sample_graphs import SAMPLES, chosen_graphs

from lowtide.engine.graph.file_format import read_graph_file
from lowtide.engine.schedule import scheduler_names
from lowtide.engine.schedule.candidate import make_candidate

COMBINED = ("search", "xla-best", "inductor-best")
ORDERS = [name for name in scheduler_names() if name not in COMBINED]


@dataclass(frozen=True)
class Row:
    """What was found for one graph; peaks and bounds are summed over memory spaces, in bytes."""

    graph: str
    n_ops: int
    orders: list[int]
    peak: int
    bound: int
    seconds: float

    @property
    def proven(self) -> bool:
        """Whether the order found is known to be the best there is."""
        return self.peak == self.bound

    @property
    def gap(self) -> float:
        """How far the peak lies above the bound, as a share of the bound."""
        return self.peak / self.bound - 1 if self.bound else float(self.peak > 0)

    @property
    def to_best_order(self) -> float:
        """The peak as a share of the best order's."""
        return self.peak / min(self.orders) if min(self.orders) else 1.0

    def line(self) -> str:
        """The row of the table; orders as multiples of the search's peak."""
        multiples = (f"{order / self.peak:.3f}" if self.peak else "1.000" for order in self.orders)
        proof = "proven" if self.proven else f"{self.gap:.3%}"
        cells = (self.graph, f"{self.n_ops:,}", *multiples, f"{self.peak:,}", f"{self.bound:,}", proof)
        return f"| {' | '.join(cells)} | {self.seconds:.2f} |"


def measure(path: Path) -> Row:
    """Run every order and the search on the graph of a file."""
    graph = read_graph_file(path)
    orders = [make_candidate(name, graph, in_place=True).plan.peak_bytes for name in ORDERS]
    found = make_candidate("search", graph, in_place=True)
    return Row(
        graph=path.name.removesuffix(".gz").removesuffix(".graph.json"),
        n_ops=graph.n_ops,
        orders=[sum(peaks.values()) for peaks in orders],
        peak=sum(found.plan.peak_bytes.values()),
        bound=sum(bound.peak_bytes for bound in found.bounds),
        seconds=found.seconds,
    )


def summary(rows: list[Row]) -> list[str]:
    """Say how the targets are met."""
    seconds = sorted(row.seconds for row in rows)
    proven = sum(row.proven for row in rows)
    won = sum(row.peak < min(row.orders) for row in rows)
    worst = max(rows, key=lambda row: row.gap)
    remat = max((row for row in rows if row.graph.startswith("remat")), key=lambda row: row.gap, default=worst)
    return [
        f"- proven optimal: {proven} of {len(rows)} graphs ({proven / len(rows):.1%})",
        f"- done within a second: {sum(s < 1 for s in seconds) / len(rows):.1%}; "
        f"median {seconds[len(rows) // 2]:.3f} s, slowest {seconds[-1]:.1f} s",
        f"- below every order: {won} graphs; largest ratio to the best order: "
        f"{max(row.to_best_order for row in rows):.4f}, least: {min(row.to_best_order for row in rows):.4f}",
        f"- largest gap to the bound: {worst.gap:.3%} ({worst.graph}); "
        f"among graphs with rematerialization: {remat.gap:.3%} ({remat.graph})",
    ]


def main() -> None:
    """Measure, print, and write the section into RESULTS.md when the graphs are the project's own."""
    folder, paths = chosen_graphs(__doc__)
    head = ["graph", "ops", *ORDERS, "search, bytes", "bound, bytes", "gap", "seconds"]
    table = table_head(head)
    print("\n".join(table), flush=True)
    rows: list[Row] = []
    for path in paths:
        rows.append(measure(path))
        print(rows[-1].line(), flush=True)
    figures = summary(rows)
    print("\n".join(figures))
    if max(row.to_best_order for row in rows) > 1:
        sys.exit("the search is above another order")
    if folder.resolve() == SAMPLES.resolve():
        lead = (
            "Orders as multiples of the search's peak. Default effort; seconds of one run, all orders it starts from "
        )
        lead += "included; in-place pairs may be taken."
        text = [lead, "", *figures, "", *table, *(row.line() for row in rows)]
        write_section("The search on sample graphs", "python benchmarks/bench_search.py", "\n".join(text))


if __name__ == "__main__":
    main()
