"""What `compare` says: every order side by side, with the bound."""

from dataclasses import dataclass
from typing import Any

from lowtide.analysis.lower_bounds import lower_bounds
from lowtide.analysis.problem import Problem
from lowtide.graph import Graph
from lowtide.report.figures import format_by_space, format_ratio
from lowtide.report.printable import printable
from lowtide.report.table import format_table
from lowtide.schedule import Candidate


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Orders of one graph, in the order of the scheduler table."""

    graph: Graph
    rows: list[Candidate]
    lower_bound_bytes: dict[str, int]

    @classmethod
    def of(cls, graph: Graph, rows: list[Candidate], *, in_place: bool) -> "Comparison":
        """Put candidates side by side with the bound that holds for all of them."""
        problem = Problem(graph, in_place=in_place)
        bounds = lower_bounds(problem, [row.plan.order() for row in rows])
        proven = [*bounds, *(bound for row in rows for bound in row.bounds)]
        best = {space.name: 0 for space in graph.spaces}
        for bound in proven:
            best[bound.space] = max(best[bound.space], bound.peak_bytes)
        return cls(graph=graph, rows=rows, lower_bound_bytes=best)

    def to_json(self) -> dict[str, Any]:
        """Return the fields of the JSON object."""
        return {
            "name": self.graph.name,
            "rows": [
                {"scheduler": row.scheduler, "peak_bytes": row.plan.peak_bytes, "seconds": row.seconds}
                for row in self.rows
            ],
            "lower_bound_bytes": self.lower_bound_bytes,
        }

    def to_text(self) -> str:
        """Return the table for people."""
        best = min(self.rows, key=lambda row: row.key).plan.peak_bytes
        rows = [
            [
                row.scheduler,
                format_by_space(row.plan.peak_bytes),
                format_ratio(row.plan.peak_bytes, best),
                f"{row.seconds:.3f}",
            ]
            for row in self.rows
        ]
        rows.append(
            ["lower bound", format_by_space(self.lower_bound_bytes), format_ratio(self.lower_bound_bytes, best), ""]
        )
        title = f"{printable(self.graph.name)}: {self.graph.n_ops} ops, {self.graph.n_buffers} buffers"
        return f"{title}\n{format_table(['order', 'peak', 'of best', 'seconds'], rows, [False, True, True, True])}"
