"""The result of `check`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from lowtide.core.documents import fields_of
from lowtide.core.effort import DEFAULT_EFFORT, EffortName
from lowtide.core.errors import UsageError
from lowtide.core.units import format_bytes, given_bytes, parse_share
from lowtide.engine.analysis import simulate
from lowtide.engine.analysis.folding import fold
from lowtide.engine.analysis.holders_at_peak import holders_at_peak
from lowtide.engine.graph import Graph
from lowtide.engine.plan import Plan
from lowtide.engine.planning.find_plan import find_plan
from lowtide.engine.planning.settings import PlanSettings
from lowtide.reporting.difference import difference
from lowtide.reporting.export.placed import with_addresses
from lowtide.reporting.fields import FindingFields, GateFields
from lowtide.reporting.table import printable

_MOST_NAMED = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits in bytes of the first memory space; None for no limit."""

    max_peak: int | None = None
    """Without persistent buffers."""
    max_total: int | None = None
    """With persistent buffers."""
    max_arena: int | None = None
    max_growth: float | None = None
    """Growth of the peak over the base program, as a fraction."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A limit and the limited figure."""

    rule: str
    """Name of the limit's option: "max-peak"."""
    space: str
    bytes: int
    limit_bytes: int
    why: tuple[str, ...] = ()
    """If exceeded: the largest tensors at the peak, or those that grew."""

    @property
    def ok(self) -> bool:
        return self.bytes <= self.limit_bytes

    @property
    def sentence(self) -> str:
        name = self.rule.removeprefix("max-")
        figure = f"{name if name != 'growth' else 'peak'} of {printable(self.space)} {format_bytes(self.bytes)}"
        if self.ok:
            return f"{figure}, limit {format_bytes(self.limit_bytes)}: ok"
        why = f"; {', '.join(self.why)}" if self.why else ""
        over = format_bytes(self.bytes - self.limit_bytes)
        return f"{figure} is {over} over the limit of {format_bytes(self.limit_bytes)} ({self.rule}){why}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    """A program and its limits' findings."""

    name: str
    findings: tuple[Finding, ...] = ()

    @property
    def ok(self) -> bool:
        return all(finding.ok for finding in self.findings)

    def to_json(self) -> GateFields:
        return fields_of(GateFields, self, findings=[fields_of(FindingFields, finding) for finding in self.findings])


def check_runs(
    runs: Sequence[tuple[Graph, Plan]], limits: Limits, *, planned: bool = False, effort: EffortName = DEFAULT_EFFORT
) -> Gate:
    """Check the limits of a program: unmodified or, with `planned`, as planned without a budget.

    `runs` are the program and its run without a plan, then those for `max_growth`, which are planned the same way.
    Raises UsageError without any limit, and for only one of growth and base.
    """
    (graph, unplanned), (base, base_unplanned) = runs[0], runs[1] if len(runs) > 1 else (None, None)
    if limits == Limits():
        raise UsageError("there is no limit to check; give --max-peak, --max-total, --max-arena or --max-growth")
    if (limits.max_growth is None) != (base is None):
        raise UsageError("--max-growth needs the program to compare with; give --against, too, or neither")
    plan = _plan(graph, planned, effort, unplanned, packs=limits.max_arena is not None)
    space = graph.spaces[0].name
    peak, persistent = simulate(graph, plan).peak_bytes[space], graph.persistent_bytes()[space]
    findings: list[Finding] = []
    for rule, limit, figure in (
        ("max-peak", limits.max_peak, peak),
        ("max-total", limits.max_total, peak + persistent),
        ("max-arena", limits.max_arena, plan.arena_bytes.get(space, 0)),
    ):
        if limit is not None:
            found = Finding(rule=rule, space=space, bytes=figure, limit_bytes=limit)
            findings.append(found if found.ok else replace(found, why=_largest(graph, plan, space)))
    if base is not None and base_unplanned is not None and limits.max_growth is not None:
        base_plan = _plan(base, planned, effort, base_unplanned, packs=False)
        findings.append(_growth(graph, plan, base, base_plan, limits.max_growth))
    return Gate(name=graph.name, findings=tuple(findings))


def _plan(graph: Graph, planned: bool, effort: EffortName, unplanned: Plan, *, packs: bool) -> Plan:
    if planned:
        return find_plan(graph, PlanSettings(effort=effort, addresses=packs)).plan
    return with_addresses(graph, unplanned, effort) if packs else unplanned


def _largest(graph: Graph, plan: Plan, space: str) -> tuple[str, ...]:
    here = [each for each in fold(holders_at_peak(graph, plan)) if each.first.space == space]
    return tuple(f"{printable(each.label)} holds {format_bytes(each.size_bytes)}" for each in here[:_MOST_NAMED])


def _growth(graph: Graph, plan: Plan, base: Graph, base_plan: Plan, most: float) -> Finding:
    space = graph.spaces[0].name
    found = difference(base, base_plan, graph, plan)
    before = found.before_peak_bytes.get(space, 0)
    finding = Finding(
        rule="max-growth",
        space=space,
        bytes=found.after_peak_bytes[space],
        limit_bytes=int(before * (1 + most)),
    )
    grown = [change for change in found.held if change.space == space and change.growth_bytes > 0]
    return finding if finding.ok else replace(finding, why=tuple(each.written() for each in grown[:_MOST_NAMED]))


def read_limits(given: Mapping[str, Any]) -> Limits:
    """Parse limits ("6GiB", "1%") by field name; raises UsageError."""
    sizes = {name: given[name] for name in ("max_peak", "max_total", "max_arena") if given.get(name) is not None}
    growth = given.get("max_growth")
    return Limits(
        **{name: given_bytes(size) for name, size in sizes.items()},
        max_growth=None if growth is None else parse_share(growth),
    )
