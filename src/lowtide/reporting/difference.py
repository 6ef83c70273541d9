"""The result of `diff` for two programs."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from lowtide.core.units import format_by_space, format_bytes
from lowtide.engine.analysis import Footprint, simulate
from lowtide.engine.analysis.folding import fold, stem
from lowtide.engine.analysis.holders_at_peak import holders_at_peak
from lowtide.engine.graph import Graph
from lowtide.engine.plan import Plan, StepKind
from lowtide.reporting.table import printable

_MOST_SHOWN = 10
_MOST_NAMED = 4


@dataclass(frozen=True, slots=True)
class HeldChange:
    """Tensors whose bytes at the peak of a memory space changed; repeated layers are one row."""

    space: str
    label: str
    """The producing op or, for inputs, the buffer, without numbers."""
    before_bytes: int
    before_count: int
    after_bytes: int
    after_count: int

    @property
    def growth_bytes(self) -> int:
        return self.after_bytes - self.before_bytes

    def written(self) -> str:
        """Return "relu x 8 -> x 9: 8.0 MiB -> 9.0 MiB (+1.0 MiB)"."""
        sign = "+" if self.growth_bytes >= 0 else "-"
        counts = "" if self.before_count == self.after_count else f" x {self.before_count} -> x {self.after_count}"
        before, after, growth = map(format_bytes, (self.before_bytes, self.after_bytes, abs(self.growth_bytes)))
        return f"{printable(self.label)}{counts}: {before} -> {after} ({sign}{growth})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Resized:
    """A buffer whose size changed."""

    buffer: str
    before_bytes: int
    after_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ProgramDifference:
    """The difference of two programs, each under a plan; ops and buffers are matched by name."""

    before: str
    after: str
    before_peak_bytes: dict[str, int]
    after_peak_bytes: dict[str, int]
    before_persistent_bytes: dict[str, int]
    after_persistent_bytes: dict[str, int]
    peak_op: dict[str, tuple[str | None, str | None]]
    """Before and after, per space; None before the first op."""
    held: tuple[HeldChange, ...]
    """The largest change first."""
    new_ops: tuple[str, ...]
    gone_ops: tuple[str, ...]
    resized: tuple[Resized, ...]
    """The largest change first."""
    moved_addresses: int
    """Common buffers with a new first address; 0 if a plan has no addresses."""

    def __repr__(self) -> str:
        return self.to_text()

    def to_text(self) -> str:
        """Return the difference as text."""
        lines = [
            f"{printable(self.before)} -> {printable(self.after)}",
            f"  peak        {format_by_space(self.before_peak_bytes)} -> {format_by_space(self.after_peak_bytes)}",
            f"  persistent  {format_by_space(self.before_persistent_bytes)} -> "
            f"{format_by_space(self.after_persistent_bytes)}",
        ]
        for space, (before, after) in self.peak_op.items():
            if before != after:
                lines.append(f"  peak of {printable(space)} moved from {_op(before)} to {_op(after)}")
        if self.held:
            lines += ["", "At the peak:", *(f"  {change.written()}" for change in self.held[:_MOST_SHOWN])]
            if len(self.held) > _MOST_SHOWN:
                rest = sum(change.growth_bytes for change in self.held[_MOST_SHOWN:])
                lines.append(
                    f"  and {len(self.held) - _MOST_SHOWN} more, {'+' if rest >= 0 else '-'}{format_bytes(abs(rest))}"
                )
        lines += ["", f"Ops: {_names('new', self.new_ops)}, {_names('gone', self.gone_ops)}"]
        if self.resized:
            lines.append(f"Buffers of another size: {len(self.resized)}")
            lines += [
                f"  {printable(row.buffer)}: {format_bytes(row.before_bytes)} -> {format_bytes(row.after_bytes)}"
                for row in self.resized[:_MOST_SHOWN]
            ]
        if self.moved_addresses:
            lines.append(f"Buffers with a new address: {self.moved_addresses}")
        return "\n".join(lines)


def difference(before: Graph, before_plan: Plan, after: Graph, after_plan: Plan) -> ProgramDifference:
    """Compare two programs under their unverified plans. O(steps + e).

    The changes in `held` of a space add up to the change of its peak.
    """
    peaks = [simulate(graph, plan) for graph, plan in ((before, before_plan), (after, after_plan))]
    before_ops, after_ops = _peak_ops(before, before_plan, peaks[0]), _peak_ops(after, after_plan, peaks[1])
    sizes = dict(zip(before.buffer_names, before.sizes.tolist(), strict=True))
    resized = [
        Resized(buffer=name, before_bytes=sizes[name], after_bytes=size)
        for name, size in zip(after.buffer_names, after.sizes.tolist(), strict=True)
        if sizes.get(name, size) != size
    ]
    old_ops, new_ops = set(before.op_names), set(after.op_names)
    return ProgramDifference(
        before=before.name,
        after=after.name,
        before_peak_bytes=peaks[0].peak_bytes,
        after_peak_bytes=peaks[1].peak_bytes,
        before_persistent_bytes=before.persistent_bytes(),
        after_persistent_bytes=after.persistent_bytes(),
        peak_op={space: (before_ops.get(space), after_ops.get(space)) for space in {**before_ops, **after_ops}},
        held=_held(before, before_plan, after, after_plan),
        new_ops=tuple(name for name in after.op_names if name not in old_ops),
        gone_ops=tuple(name for name in before.op_names if name not in new_ops),
        resized=tuple(sorted(resized, key=lambda row: -abs(row.after_bytes - row.before_bytes))),
        moved_addresses=_moved(before, before_plan, after, after_plan),
    )


def _held(before: Graph, before_plan: Plan, after: Graph, after_plan: Plan) -> tuple[HeldChange, ...]:
    held: dict[tuple[str, str], list[int]] = {}
    for number, (graph, plan) in enumerate(((before, before_plan), (after, after_plan))):
        for each in fold(holders_at_peak(graph, plan)):
            first = each.first
            label = first.name if first.op is None else first.op
            figures = held.setdefault((first.space, stem(label)), [0, 0, 0, 0])
            figures[2 * number] += each.size_bytes
            figures[2 * number + 1] += len(each.holders)
    rows = [HeldChange(*where, *figures) for where, figures in held.items()]
    return tuple(sorted((row for row in rows if row.growth_bytes), key=lambda row: -abs(row.growth_bytes)))


def _peak_ops(graph: Graph, plan: Plan, footprint: Footprint) -> dict[str, str | None]:
    runs = np.flatnonzero(plan.kinds == StepKind.RUN)
    last_runs = {space: runs[runs <= step] for space, step in footprint.peak_steps.items()}
    return {
        space: graph.op_names[int(plan.targets[before[-1]])] if len(before) else None
        for space, before in last_runs.items()
    }


def _moved(before: Graph, before_plan: Plan, after: Graph, after_plan: Plan) -> int:
    places = [
        {graph.buffer_names[row.buffer]: (row.space, row.offset) for row in reversed(plan.addresses)}
        for graph, plan in ((before, before_plan), (after, after_plan))
    ]
    return sum(places[1].get(name, place) != place for name, place in places[0].items())


def _op(name: str | None) -> str:
    return "the start" if name is None else printable(name)


def _names(change: str, names: Iterable[str]) -> str:
    listed = list(names)
    if not listed:
        return f"none {change}"
    more = f" and {len(listed) - _MOST_NAMED} more" if len(listed) > _MOST_NAMED else ""
    return f"{len(listed)} {change} ({', '.join(map(printable, listed[:_MOST_NAMED]))}{more})"
