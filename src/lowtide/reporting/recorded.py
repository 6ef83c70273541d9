"""The peak of recorded allocations."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypedDict

from lowtide.core.documents import fields_of
from lowtide.core.units import format_bytes, percent
from lowtide.reporting.table import format_table, printable, table_width

_MOST_LINES = 15


class RecordedLineFields(TypedDict):
    """The tensors at a recorded peak that one source line allocated."""

    where: str
    size_bytes: int
    n_tensors: int


class RecordedFields(TypedDict):
    """The peak of one device in a memory snapshot."""

    space: str
    n_events: int
    peak_event: int
    peak_bytes: int
    failed_bytes: int | None
    failed_at: str | None
    device_free_bytes: int | None
    reserved_bytes: int | None
    fragmentation_bytes: int | None
    kept_bytes: int
    largest_bytes: int
    largest_at: str
    floor_bytes: int
    most_saved_bytes: int
    lines: Sequence[RecordedLineFields]


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedLine:
    """Tensors at the peak allocated by one source line."""

    where: str
    size_bytes: int
    n_tensors: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """The peak of one device in a memory snapshot."""

    space: str
    """The device's memory space in the graph."""
    n_events: int
    peak_event: int
    """Position among the events; 0 is before the first."""
    peak_bytes: int
    """Includes a request that failed at the peak."""
    failed_bytes: int | None
    """Size of the request that failed at the peak."""
    failed_at: str | None
    device_free_bytes: int | None
    """Memory that the driver had left for this request."""
    reserved_bytes: int | None
    """Bytes that PyTorch had reserved at the peak; None without complete segments."""
    kept_bytes: int
    """Tensors from before the recording that are never freed, like weights."""
    largest_bytes: int
    """The largest other tensor."""
    largest_at: str
    lines: tuple[RecordedLine, ...]
    """Largest sum first; they add up to the peak."""

    @property
    def fragmentation_bytes(self) -> int | None:
        """Reserved but unallocated bytes at the peak."""
        return None if self.reserved_bytes is None else self.reserved_bytes - self.peak_bytes + (self.failed_bytes or 0)

    @property
    def floor_bytes(self) -> int:
        """Lower bound on the peak of plans that keep the kept tensors and allocate all others whole."""
        return self.kept_bytes + self.largest_bytes

    @property
    def most_saved_bytes(self) -> int:
        """Upper bound on the bytes that such a plan saves."""
        return self.peak_bytes - self.floor_bytes

    def to_json(self) -> RecordedFields:
        """Return the fields of the JSON object."""
        return fields_of(RecordedFields, self)

    def to_text(self) -> str:
        """Return the figures and the tables as text."""
        instant = f"after event {self.peak_event:,} of {self.n_events:,}" if self.peak_event else "at the start"
        lines = [f"  peak           {format_bytes(self.peak_bytes)}   (tensors of {self.space}, {instant})"]
        if self.failed_bytes is not None:
            free = "" if self.device_free_bytes is None else f"; the device had {format_bytes(self.device_free_bytes)}"
            failed = f"{format_bytes(self.failed_bytes)} of it failed at {printable(self.failed_at or 'unknown')}{free}"
            lines.append(f"  out of memory  {failed}")
        if self.reserved_bytes is not None and self.fragmentation_bytes is not None:
            lines += [
                f"  reserved       {format_bytes(self.reserved_bytes)}   (by PyTorch at the peak)",
                f"  fragmentation  {format_bytes(self.fragmentation_bytes)}   (reserved but not allocated: gaps "
                "between tensors, cached blocks and rounding)",
            ]
        lines += [
            f"  kept           {format_bytes(self.kept_bytes)}   (allocated before the recording, never freed)",
            "",
            f"At the peak, by source line ({sum(line.n_tensors for line in self.lines):,} tensors):",
            self._table(),
        ]
        rest = self.lines[_MOST_LINES:]
        if rest:
            lines.append(
                f"... and {len(rest)} more lines, {format_bytes(sum(line.size_bytes for line in rest))} in total"
            )
        return "\n".join([*lines, "", *self._savings()])

    def _table(self) -> str:
        whole = self.peak_bytes or 1
        rows = [
            [format_bytes(line.size_bytes), percent(line.size_bytes / whole), str(line.n_tensors), line.where]
            for line in self.lines[:_MOST_LINES]
        ]
        return format_table(["size", "share", "tensors", "where"], rows, [True, True, True, False], table_width())

    def _savings(self) -> list[str]:
        lines = ["A plan saves at most:"]
        if self.fragmentation_bytes is not None:
            lines.append(f"  addresses      {format_bytes(self.fragmentation_bytes)} of the reserved memory")
        share = percent(self.most_saved_bytes / (self.peak_bytes or 1))
        return [
            *lines,
            f"  all else       {format_bytes(self.most_saved_bytes)} of the peak ({share})",
            f"The peak cannot fall below {format_bytes(self.floor_bytes)}: the kept tensors and the largest other one, "
            f"{format_bytes(self.largest_bytes)} at {printable(self.largest_at)}. This holds for all plans of the "
            "recorded part that leave the kept tensors on the device and allocate every other tensor whole.",
        ]


def recorded_to_text(name: str, recorded: Sequence[Recorded]) -> str:
    """Return a snapshot's peaks on all devices, and the next step, as text."""
    events = sum(each.n_events for each in recorded)
    parts = [f"{printable(name)}: memory snapshot of {len(recorded)} devices, {events:,} events"]
    if len(recorded) == 1:
        parts = [f"{printable(name)}: memory snapshot, {events:,} events"]
    for each in recorded:
        parts += [each.to_text(), ""]
    return "\n".join(
        [
            *parts,
            "A snapshot does not record the readers of a tensor, so `lowtide plan` improves only its addresses. "
            "To save more, plan the training step itself with lowtide.torch.training_step.",
        ]
    )
