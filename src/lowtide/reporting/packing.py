"""The result of `pack`: arena, lower bound, gap, and the buffers that do not fit."""

from lowtide.core.units import format_bytes
from lowtide.engine.packing import FREE, Buffers, Packed
from lowtide.reporting.fields import PackFields
from lowtide.reporting.table import printable

_MOST_NAMED = 8


def shortfall(buffers: Buffers, packed: Packed, capacity: int | None) -> str | None:
    """Return why a packing exceeds a capacity and whether that is proven; None if it fits."""
    if capacity is None or packed.arena_bytes <= capacity:
        return None
    if packed.status == "infeasible":
        names = [printable(buffers.name(buffer)) for buffer in packed.conflict[:_MOST_NAMED]]
        rest = len(packed.conflict) - len(names)
        more = f" and {rest} more" if rest else ""
        needed = " (a smallest such set)" if packed.conflict_minimal else ""
        held = f"; these cannot fit together{needed}: {', '.join(names)}{more}" if names else ""
        return f"proven: no packing fits {capacity} bytes{held}"
    over = packed.arena_bytes - capacity
    return f"no packing into {capacity} bytes found, the best needs {over} more; not proven impossible"


def _n_hints(buffers: Buffers) -> int:
    return 0 if buffers.hints is None else int((buffers.hints != FREE).sum())


def packed_to_json(buffers: Buffers, packed: Packed, capacity: int | None, seconds: float) -> PackFields:
    """Return the fields of the JSON object."""
    return {
        "status": packed.status,
        "method": packed.method,
        "n_buffers": len(buffers),
        "arena_bytes": packed.arena_bytes,
        "lower_bound_bytes": packed.lower_bound_bytes,
        "optimal": packed.optimal,
        "gap": packed.gap,
        "capacity_bytes": capacity,
        "bound_holders": [buffers.name(buffer) for buffer in packed.bound_holders],
        "conflict": [buffers.name(buffer) for buffer in packed.conflict],
        "conflict_minimal": packed.conflict_minimal,
        "n_hints": _n_hints(buffers),
        "hints_kept": packed.hints_kept,
        "work": packed.work,
        "seconds": seconds,
        "shortfall": shortfall(buffers, packed, capacity),
    }


def _exactly(count: int) -> str:
    """Return a figure in bytes, and in MiB if large; capacities are exact to the byte."""
    return f"{count} bytes" if count < 2**20 else f"{count} bytes, {format_bytes(count)}"


def packed_to_text(name: str, buffers: Buffers, packed: Packed, capacity: int | None, seconds: float) -> str:
    """Return the result as text."""
    gap = "no packing needs less" if packed.optimal else f"at most {packed.gap:.2%} above the smallest"
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
    missed = shortfall(buffers, packed, capacity)
    if missed is not None:
        lines.append(f"  does not fit     {missed}")
    return "\n".join(lines)
