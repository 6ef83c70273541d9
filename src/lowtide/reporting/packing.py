"""The result of `pack`."""

from lowtide.core.documents import fields_of
from lowtide.core.units import format_bytes, percent
from lowtide.engine.packing import FREE, Buffers, Packed
from lowtide.reporting.fields import PackFields
from lowtide.reporting.shortfall import describe_packing
from lowtide.reporting.table import printable


def _n_hints(buffers: Buffers) -> int:
    return 0 if buffers.hints is None else int((buffers.hints != FREE).sum())


def packed_to_json(buffers: Buffers, packed: Packed, capacity: int | None, seconds: float) -> PackFields:
    return fields_of(
        PackFields,
        packed,
        n_buffers=len(buffers),
        capacity_bytes=capacity,
        bound_holders=[buffers.name(buffer) for buffer in packed.bound_holders],
        conflict=[buffers.name(buffer) for buffer in packed.conflict],
        n_hints=_n_hints(buffers),
        seconds=seconds,
        shortfall=describe_packing(buffers, packed, capacity),
    )


def _exactly(count: int) -> str:
    """Return bytes, and MiB if large, since capacities are exact to the byte."""
    return f"{count} bytes" if count < 2**20 else f"{count} bytes, {format_bytes(count)}"


def packed_to_text(name: str, buffers: Buffers, packed: Packed, capacity: int | None, seconds: float) -> str:
    gap = "no packing needs less" if packed.optimal else f"at most {percent(packed.gap)} above the smallest"
    holders = f"   (set by {len(packed.bound_holders)} buffers)" if packed.bound_holders else ""
    lines = [
        f"{printable(name)}: {len(buffers)} buffers, {packed.status}, method {packed.method}, in {seconds:.2f} s",
        f"  arena            {_exactly(packed.arena_bytes)}   ({gap})",
        f"  lower bound      {_exactly(packed.lower_bound_bytes)}{holders}",
    ]
    if capacity is not None:
        lines.append(f"  capacity         {_exactly(capacity)}")
    if _n_hints(buffers):
        lines.append(f"  hints            {packed.hints_kept} of {_n_hints(buffers)} kept")
    missed = describe_packing(buffers, packed, capacity)
    if missed is not None:
        lines.append(f"  does not fit     {missed}")
    return "\n".join(lines)
