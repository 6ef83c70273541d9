"""The result of `diff` for two plan files."""

from collections import Counter
from dataclasses import dataclass

import numpy as np

from lowtide.core.units import format_by_space
from lowtide.engine.analysis.problem import Order
from lowtide.engine.plan.summary import PlanSummary
from lowtide.engine.search import moved_ops


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class PlanDifference:
    """The difference of two plans, without their program."""

    before: str
    after: str
    same_program: bool
    """Whether both plans are for one graph. Otherwise only peaks and counts are compared."""
    before_status: str
    after_status: str
    before_peak_bytes: dict[str, int]
    after_peak_bytes: dict[str, int]
    before_arena_bytes: dict[str, int]
    after_arena_bytes: dict[str, int]
    before_lower_bound_bytes: dict[str, int]
    after_lower_bound_bytes: dict[str, int]
    before_recomputed_runs: int
    after_recomputed_runs: int
    before_copies: int
    after_copies: int
    moved_ops: int | None
    """Ops whose first run moved; None for different programs."""
    changed_recomputation: tuple[int, ...]
    """Ops run more or less often, by index; empty for different programs."""

    @classmethod
    def of(cls, names: tuple[str, str], before: PlanSummary, after: PlanSummary) -> "PlanDifference":
        """Compare two plans, named after their files."""
        same = before.graph_fingerprint == after.graph_fingerprint
        runs, other = Counter(before.runs), Counter(after.runs)
        changed = tuple(sorted(op for op in {*runs, *other} if runs[op] != other[op])) if same else ()
        return cls(
            before=names[0],
            after=names[1],
            same_program=same,
            before_status=before.status,
            after_status=after.status,
            before_peak_bytes=dict(before.peak_bytes),
            after_peak_bytes=dict(after.peak_bytes),
            before_arena_bytes=dict(before.arena_bytes),
            after_arena_bytes=dict(after.arena_bytes),
            before_lower_bound_bytes=dict(before.lower_bound_bytes),
            after_lower_bound_bytes=dict(after.lower_bound_bytes),
            before_recomputed_runs=len(before.runs) - len(runs),
            after_recomputed_runs=len(after.runs) - len(other),
            before_copies=before.copies,
            after_copies=after.copies,
            moved_ops=len(moved_ops(_order(before), _order(after))) if same else None,
            changed_recomputation=changed,
        )

    def __repr__(self) -> str:
        return self.to_text()

    def to_text(self) -> str:
        """Return the difference as text."""
        rows = [
            ("status", self.before_status, self.after_status),
            ("peak", format_by_space(self.before_peak_bytes), format_by_space(self.after_peak_bytes)),
            (
                "lower bound",
                format_by_space(self.before_lower_bound_bytes),
                format_by_space(self.after_lower_bound_bytes),
            ),
            ("arena", format_by_space(self.before_arena_bytes), format_by_space(self.after_arena_bytes)),
            ("recomputed", f"{self.before_recomputed_runs} runs", f"{self.after_recomputed_runs} runs"),
            ("copies", str(self.before_copies), str(self.after_copies)),
        ]
        lines = [f"{self.before} -> {self.after}"]
        if not self.same_program:
            lines.append("  the plans are for different programs, or for different forms of one")
        lines += [f"  {name:<16} {old} -> {new}" if old != new else f"  {name:<16} {old}" for name, old, new in rows]
        if self.moved_ops is not None:
            lines.append(f"  order            {self.moved_ops} ops moved")
        if self.changed_recomputation:
            lines.append(f"  recomputation    {len(self.changed_recomputation)} ops run more or less often")
        return "\n".join(lines)


def _order(plan: PlanSummary) -> Order:
    return np.asarray(plan.first_runs, np.int32)
