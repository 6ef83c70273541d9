"""Plan files read without their program."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from lowtide.core.documents import read_document
from lowtide.engine.plan.file_format import CopyInRow, CopyOutRow, PlanRecord, RunRow


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanSummary:
    """The figures and the runs of a plan file, not verified."""

    graph_fingerprint: str
    status: str
    peak_bytes: Mapping[str, int]
    lower_bound_bytes: Mapping[str, int]
    arena_bytes: Mapping[str, int]
    runs: Sequence[int]
    copies: int

    @property
    def first_runs(self) -> list[int]:
        return list(dict.fromkeys(self.runs))


def read_plan_summary(path: str | Path) -> PlanSummary:
    """Read a plan file; raises InputError, MalformedInputError if it is no plan file."""
    record = read_document(Path(path), PlanRecord, "no valid plan file")
    runs = [row.op for row in record.steps if isinstance(row, RunRow)]
    copies = sum(isinstance(row, CopyOutRow | CopyInRow) for row in record.steps)
    return PlanSummary(
        graph_fingerprint=record.graph,
        status=record.status,
        peak_bytes=record.peak_bytes,
        lower_bound_bytes=record.lower_bound_bytes,
        arena_bytes=record.arena_bytes,
        runs=runs,
        copies=copies,
    )
