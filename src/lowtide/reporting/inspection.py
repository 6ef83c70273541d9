"""The result of `inspect`."""

from collections.abc import Sequence
from dataclasses import dataclass

from lowtide.core.documents import fields_of
from lowtide.core.effort import DEFAULT_EFFORT, EffortName
from lowtide.core.index_spaces import OpId
from lowtide.core.progress import Report
from lowtide.core.units import format_by_space, format_bytes
from lowtide.engine.analysis.folding import Fold, fold
from lowtide.engine.analysis.holders_at_peak import Holder, holders_at_peak
from lowtide.engine.analysis.lower_bounds import BoundHolder, LowerBound, bound_holders, lower_bounds
from lowtide.engine.analysis.memory_picture import memory_picture
from lowtide.engine.analysis.problem import Problem
from lowtide.engine.graph import Graph
from lowtide.engine.packing import pack_plan
from lowtide.engine.plan import Plan
from lowtide.engine.plan.claim import Claim, strongest
from lowtide.engine.schedule import make_candidate
from lowtide.reporting.claims import caption, claims_to_json
from lowtide.reporting.comparison import claims_of_search
from lowtide.reporting.fields import InspectFields
from lowtide.reporting.recorded import Recorded
from lowtide.reporting.runtime import RuntimeOutlook
from lowtide.reporting.table import format_table, fragmentation, printable, table_width

_MOST_HOLDERS = 20
_MOST_BOUND_HOLDERS = 10


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Inspection:
    """Memory of the unmodified program."""

    graph: Graph
    peak_bytes: dict[str, int]
    arena_bytes: dict[str, int]
    arena_lower_bound_bytes: dict[str, int]
    cuts: list[LowerBound]
    """Bytes that a single op needs in any order, per space."""
    claims: list[Claim]
    """From cuts or a search of all orders."""
    bound_holders: list[BoundHolder]
    """Tensors alive at the cuts; their sizes add up to the cuts."""
    best: Plan
    """The best order found by the search for the bound."""
    holders: list[Holder]

    @property
    def lower_bound_bytes(self) -> dict[str, int]:
        """Per memory space, 0 if nothing is proven."""
        return {space.name: 0 for space in self.graph.spaces} | strongest(self.claims)

    @classmethod
    def of(
        cls, graph: Graph, *, in_place: bool, effort: EffortName = DEFAULT_EFFORT, progress: Report | None = None
    ) -> "Inspection":
        """Inspect a graph in program order, without in-place pairs; with `in_place` the bound allows them.

        The bound is the one that `plan` finds with the same effort.
        """
        plan = Plan.baseline(graph)
        problem = Problem(graph, in_place=in_place)
        evaluation = Problem(graph, in_place=False).evaluate(problem.given_order())
        searched = make_candidate("search", graph, in_place=in_place, effort=effort, progress=progress)
        if searched.interrupted:
            raise KeyboardInterrupt
        cuts = lower_bounds(problem, [problem.given_order(), searched.plan.order()])
        packing = pack_plan(graph, plan, problem.transient)
        if packing.interrupted:
            raise KeyboardInterrupt
        return cls(
            graph=graph,
            peak_bytes=problem.peak_bytes(evaluation),
            arena_bytes=dict(packing.arena_bytes),
            arena_lower_bound_bytes=dict(packing.lower_bound_bytes),
            cuts=cuts,
            claims=claims_of_search(searched, in_place=in_place),
            bound_holders=bound_holders(problem, cuts),
            holders=holders_at_peak(graph, plan),
            best=searched.plan,
        )

    def to_json(self, outlook: RuntimeOutlook | None = None, recorded: Sequence[Recorded] = ()) -> InspectFields:
        """Return the fields, with other runtimes' and a recording's peaks if given."""
        return fields_of(
            InspectFields,
            self,
            name=self.graph.name,
            persistent_bytes=self.graph.persistent_bytes(),
            fragmentation_bytes=fragmentation(self.arena_bytes, self.peak_bytes),
            claims=claims_to_json(self.claims),
            cut_bytes={cut.space: cut.peak_bytes for cut in self.cuts},
            bound_op={cut.space: None if cut.op is None else self.graph.op_names[cut.op] for cut in self.cuts},
            unmodeled=list(self.graph.unmodeled),
            **({} if outlook is None else {"by_runtime": outlook.to_json()}),
            **({"recorded": [each.to_json() for each in recorded]} if recorded else {}),
        )

    def to_text(self, outlook: RuntimeOutlook | None = None) -> str:
        """Return the result as text, with other runtimes' peaks if given."""
        graph = self.graph
        lines = [
            f"{printable(graph.name)}: {graph.n_ops} ops, {graph.n_buffers} buffers",
            f"  peak         {format_by_space(self.peak_bytes)}   (program order, without persistent)",
            f"  arena        {format_by_space(self.arena_bytes)}   (with addresses; "
            f"fragmentation {format_by_space(fragmentation(self.arena_bytes, self.peak_bytes))})",
            f"  lower bound  {format_by_space(self.lower_bound_bytes)}   ({caption(self.claims)})",
            f"  persistent   {format_by_space(graph.persistent_bytes())}",
            "",
            f"At the peak, largest first ({len(self.holders)} in all):",
            self._holders_table(),
        ]
        rest = fold(self.holders)[_MOST_HOLDERS:]
        if rest:
            more = sum(len(layers.holders) for layers in rest)
            lines.append(f"... and {more} more, {format_bytes(sum(layers.size_bytes for layers in rest))} in total")
        lines += ["", *self._why_not_lower(), ""]
        lines.append("Not modeled:" if graph.unmodeled else "Not modeled: nothing")
        lines.extend(f"  {printable(sentence)}" for sentence in graph.unmodeled)
        if outlook is not None:
            lines += ["", outlook.to_text()]
        return "\n".join(lines)

    def __repr__(self) -> str:
        return self.to_text()

    def _repr_html_(self) -> str:
        return memory_picture(self.graph).html_with_text(self.to_text())

    def _described(self, op: OpId) -> str:
        source = self.graph.sources[op]
        return self.graph.op_names[op] if source is None else f"{self.graph.op_names[op]}, {source}"

    def _why_not_lower(self) -> list[str]:
        lines: list[str] = []
        for cut in self.cuts:
            here = [holder for holder in self.bound_holders if holder.space == cut.space]
            when = "before the first op or after the last one" if cut.op is None else "during this op"
            source = "" if cut.op is None else f" ({printable(self._described(cut.op))})"
            lines.append(f"Why {printable(cut.space)} cannot need less than {format_bytes(cut.peak_bytes)}{source}:")
            lines.append(f"these must be live {when}:")
            rows = fold(here)
            shown, rest = rows[:_MOST_BOUND_HOLDERS], rows[_MOST_BOUND_HOLDERS:]
            lines += [f"  {format_bytes(layers.size_bytes):>10}  {printable(_named(layers))}" for layers in shown]
            if rest:
                total = format_bytes(sum(layers.size_bytes for layers in rest))
                lines.append(f"  {total:>10}  in {sum(len(layers.holders) for layers in rest)} more")
            bound = self.lower_bound_bytes[cut.space]
            if bound > cut.peak_bytes:
                lines.append(f"A search of all orders proves that none needs less than {format_bytes(bound)}.")
        return lines

    def _holders_table(self) -> str:
        shown = fold(self.holders)[:_MOST_HOLDERS]
        rows = [_row(layers) for layers in shown]
        header = ["size", "buffer", "made by", "where", "kept alive by"]
        if not any(layers.made_at for layers in shown):
            header, rows = header[:3] + header[4:], [row[:3] + row[4:] for row in rows]
        return format_table(header, rows, [True, *[False] * (len(header) - 1)], table_width())


def _row(layers: Fold[Holder]) -> list[str]:
    first = layers.first
    size, made = format_bytes(layers.size_bytes), first.op or f"({first.lifetime})"
    if len(layers.holders) > 1:
        return [size, layers.label, first.kind or f"({first.lifetime})", layers.made_at or "", ""]
    return [size, first.name, made, layers.made_at or "", ", ".join(first.kept_alive_by)]


def _named(layers: Fold[BoundHolder]) -> str:
    return layers.label if layers.made_at is None else f"{layers.label}  {layers.made_at}"
