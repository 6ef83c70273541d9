"""The result of `compare`."""

from collections.abc import Mapping
from dataclasses import dataclass

from lowtide.core.documents import fields_of
from lowtide.core.effort import EffortName
from lowtide.core.progress import Report, current_report
from lowtide.core.units import format_by_space, format_bytes
from lowtide.engine.analysis import simulate
from lowtide.engine.analysis.memory_picture import memory_picture
from lowtide.engine.graph import Graph
from lowtide.engine.plan import Plan
from lowtide.engine.plan.claim import Claim, strongest
from lowtide.engine.planning.claims import peak_claims
from lowtide.engine.planning.measured import Reserved
from lowtide.engine.schedule import Candidate, make_candidate, scheduler_names
from lowtide.reporting.claims import caption, claims_to_json
from lowtide.reporting.fields import ComparedFields, CompareFields, OrderFields
from lowtide.reporting.table import format_ratio, format_table, printable, table_width


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Comparison:
    """Orders of one graph, in the order of the scheduler table."""

    graph: Graph
    rows: list[Candidate]
    claims: list[Claim]
    """Lower bounds over all orders."""
    reserved: Reserved | None = None
    """Memory that the framework reserved for the program, if known."""

    @property
    def unmodified_peak_bytes(self) -> dict[str, int]:
        """Peak per space without a plan. The order `given` may differ: it may use optional in-place pairs."""
        return simulate(self.graph, Plan.baseline(self.graph)).peak_bytes

    @property
    def lower_bound_bytes(self) -> dict[str, int]:
        """Per memory space, 0 if nothing is proven."""
        return {space.name: 0 for space in self.graph.spaces} | strongest(self.claims)

    def to_json(self) -> ComparedFields:
        """Return the fields of the JSON object for one program."""
        return fields_of(
            ComparedFields,
            self,
            name=self.graph.name,
            rows=[fields_of(OrderFields, row, peak_bytes=row.plan.peak_bytes) for row in self.rows],
            claims=claims_to_json(self.claims),
            **({} if self.reserved is None else {"reserved": self.reserved}),
        )

    def with_compiled(self, compiled: "Comparison | None") -> CompareFields:
        """Return the fields, with those of the compiled program if given."""
        alone = self.to_json()
        return {**alone} if compiled is None else {**alone, "compiled": compiled.to_json()}

    def __repr__(self) -> str:
        return self.to_text()

    def _repr_html_(self) -> str:
        best = min(self.rows, key=lambda row: row.key)
        unmodified = ("unmodified", format_by_space(self.unmodified_peak_bytes))
        rows = [(row.scheduler, format_by_space(row.plan.peak_bytes)) for row in self.rows]
        bound = ("lower bound", format_by_space(self.lower_bound_bytes))
        return memory_picture(self.graph, best.plan).html([unmodified, *rows, bound])

    def to_text(self) -> str:
        """Return the table as text."""
        best = min(self.rows, key=lambda row: row.key).plan.peak_bytes

        def cells(name: str, peak: Mapping[str, int], seconds: str) -> list[str]:
            return [name, format_by_space(peak), format_ratio(peak, best), seconds]

        rows = [
            cells("unmodified", self.unmodified_peak_bytes, ""),
            *(cells(row.scheduler, row.plan.peak_bytes, f"{row.seconds:.3f}") for row in self.rows),
            cells("lower bound", self.lower_bound_bytes, ""),
        ]
        title = f"{printable(self.graph.name)}: {self.graph.n_ops} ops, {self.graph.n_buffers} buffers"
        table = format_table(["order", "peak", "of best", "seconds"], rows, [False, True, True, True], table_width())
        reserved = [] if self.reserved is None else _reserved_to_text(self.reserved)
        captions = ["unmodified: program order, without optional in-place pairs"]
        captions.append(f"lower bound: {caption(self.claims)}")
        return "\n".join([title, table, *captions, *reserved])


def claims_of_search(searched: Candidate, *, in_place: bool) -> list[Claim]:
    """Return a search's bounds over all orders."""
    bounds = {bound.space: bound.peak_bytes for bound in searched.bounds}
    return peak_claims(bounds, searched.proof, "orders", in_place=in_place)


def _reserved_to_text(reserved: Reserved) -> list[str]:
    return [
        f"{reserved.by}: {format_bytes(reserved.reserved_bytes)} reserved, temporaries "
        f"{format_bytes(reserved.temporary_bytes)}; lowtide, program order: {format_bytes(reserved.peak_bytes)}",
        *(
            f"  {'-' if each.extra_bytes < 0 else '+'}{format_bytes(abs(each.extra_bytes))}  {each.reason}"
            for each in reserved.differences
        ),
    ]


def compare_orders(
    graph: Graph,
    reserved: Reserved | None = None,
    *,
    in_place: bool = True,
    effort: EffortName,
    progress: Report | None = None,
) -> Comparison:
    """Order a graph by every scheduler; Ctrl-C ends the comparison."""
    report, rows = progress or current_report(), list[Candidate]()
    for name in scheduler_names():
        report(f"ordering {graph.n_ops} ops ({name})")
        rows.append(make_candidate(name, graph, in_place=in_place, effort=effort))
        if rows[-1].interrupted:
            raise KeyboardInterrupt
    searched = next(row for row in rows if row.proof is not None)
    claims = claims_of_search(searched, in_place=in_place)
    return Comparison(graph=graph, rows=rows, claims=claims, reserved=reserved)
