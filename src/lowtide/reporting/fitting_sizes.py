"""The result of `fits` for a training step, by size."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from lowtide.core.documents import fields_of
from lowtide.core.techniques import COST_NOTHING, Techniques
from lowtide.core.units import format_bytes, percent
from lowtide.reporting.fitting import DeviceFit
from lowtide.reporting.size_fields import FitsSizesFields, SizeFields
from lowtide.reporting.table import printable

Level = Literal["unchanged", "reorder", "recompute", "chunks", "offload"]
"""The last technique in the order of `LEVELS` that a program needs to fit."""
LEVELS: tuple[Level, ...] = ("unchanged", "reorder", "recompute", "chunks", "offload")
Axis = Literal["batch", "sequence"]
_BY_LEVEL: Mapping[Level, str] = {
    "unchanged": "unchanged",
    "reorder": "in another order",
    "recompute": "with recomputation",
    "chunks": "in chunks",
    "offload": "with offload",
}
_IN_CHUNKS = "In chunks: large tensors, such as logits. Results are equal up to rounding."


@dataclass(frozen=True, slots=True, kw_only=True)
class SizeFit:
    """A training step of one size on a device."""

    size: int
    """0 if the program has no size that can vary."""
    fit: DeviceFit

    @property
    def level(self) -> Level | None:
        """None if nothing makes it fit."""
        return level_of(self.fit.techniques, in_chunks=self.in_chunks)

    @property
    def in_chunks(self) -> bool:
        """Whether large products are computed in chunks."""
        return self.fit.result.form != "unmodified"

    @property
    def persistent_bytes(self) -> int:
        """Weights, kept gradients and optimizer state, also on the host."""
        return self.fit.result.persistent_bytes[self.fit.space] + self.fit.result.state_on_host_bytes

    @property
    def total_bytes(self) -> int:
        """Bytes of the unmodified step, persistent ones included."""
        return self.persistent_bytes + self.fit.result.baseline_peak_bytes[self.fit.space]

    @property
    def planned_bytes(self) -> int:
        """Bytes of the planned step, persistent ones included."""
        on_device = self.persistent_bytes - self.fit.result.state_on_host_bytes
        return on_device + self.fit.result.peak_bytes[self.fit.space]

    def to_json(self) -> SizeFields:
        """Return the fields of the JSON object."""
        result, space = self.fit.result, self.fit.space
        return fields_of(
            SizeFields,
            result,
            size=self.size,
            fits=self.level is not None,
            level=self.level,
            persistent_bytes=self.persistent_bytes,
            baseline_peak_bytes=result.baseline_peak_bytes[space],
            peak_bytes=result.peak_bytes[space],
        )

    def to_text(self) -> str:
        """Return a row of the table."""
        size = f"{self.size:,}" if self.size else "as given"
        before = f"{size:>9}  {format_bytes(self.total_bytes):>10}  "
        if self.level == "unchanged":
            return f"{before}{'':>10}  fits unchanged"
        after = f"{before}{format_bytes(self.planned_bytes):>10}  "
        if self.level is None:
            return f"{after}does not fit"
        held = self.fit.result.state_on_host_bytes
        chunks = ["in chunks"] if self.in_chunks else []
        how = [f"{format_bytes(held)} on host"] if held else [] if self.level == "chunks" else [self.level]
        return f"{after}fits: {', '.join((*chunks, *how, percent(self.fit.result.extra_time, signed=True)))}"


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class FitTable:
    """A training step on a device, by batch size or sequence length."""

    name: str
    """Name of the program."""
    device: str
    device_bytes: int
    """Usable memory of the device."""
    axis: Axis
    settings: str
    """Optimizer, precision and the size that is fixed, in words."""
    costs: str
    """The profile of the extra time."""
    rows: Sequence[SizeFit]
    largest: Mapping[Level, int]
    """Largest size found by technique; empty unless asked for."""
    code: Sequence[str]
    """Lines of Python to use next; empty if no size fits."""

    @property
    def fits(self) -> bool:
        """Whether any size fits."""
        return any(row.level is not None for row in self.rows)

    @property
    def _moves_state(self) -> bool:
        return any(row.level is not None and row.fit.result.state_on_host_bytes for row in self.rows)

    @property
    def _updates_there(self) -> bool:
        return any(row.level is not None and row.fit.result.updated_on_host_bytes for row in self.rows)

    @property
    def _has_chunks(self) -> bool:
        return "chunks" in self.largest or any(row.in_chunks for row in self.rows if row.level is not None)

    @property
    def is_interrupted(self) -> bool:
        """Whether Ctrl-C ended the search."""
        return any(row.fit.result.status == "interrupted" for row in self.rows)

    def to_json(self) -> FitsSizesFields:
        """Return the fields of the JSON object."""
        return fields_of(FitsSizesFields, self, sizes=[row.to_json() for row in self.rows])

    def to_text(self) -> str:
        """Return the table and its notes, at most 80 columns wide, without `code`."""
        lines = [printable(self.name), f"  device           {printable(self.device)}"]
        lines += [f"  settings         {self.settings}"] if self.settings else []
        lines += ["", f"{self.axis:>9}  {'unchanged':>10}  {'planned':>10}"]
        lines += [row.to_text() for row in self.rows]
        if self.largest:
            lines += ["", f"largest {self.axis} found:"]
            lines += [f"{size:>9,}  {_BY_LEVEL[level]}" for level, size in self.largest.items()]
        lines += [
            "",
            "Sizes are those of tensors. Usable memory is without the CUDA context.",
            f"Extra time: prices {self.costs}.",
            *([_IN_CHUNKS] if self._has_chunks else []),
            *(["On host: optimizer state and parameters that the host holds."] if self._moves_state else []),
            *(["Some of it is updated there, equal up to rounding."] if self._updates_there else []),
        ]
        if self.code:
            lines += ["", "Next:"]
        return "\n".join(lines)

    def __repr__(self) -> str:
        return "\n".join((self.to_text(), *(["", *self.code] if self.code else [])))


def level_of(techniques: Techniques | None, *, in_chunks: bool) -> Level | None:
    if techniques is None:
        return None
    if "offload" in techniques:
        return "offload"
    if in_chunks:
        return "chunks"
    if "recompute" in techniques:
        return "recompute"
    return "reorder" if techniques & COST_NOTHING else "unchanged"
