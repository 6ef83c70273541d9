"""Buffers that go to one memory space together, and which spaces they may go to."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lowtide.core.errors import MalformedInputError
from lowtide.engine.packing.buffers import FREE, Buffers


@dataclass(frozen=True, slots=True, eq=False)
class SpaceUnits:
    """Units of buffers that groups tie together."""

    unit_of: NDArray[np.int64]
    """Per buffer."""
    choices: tuple[tuple[int, ...], ...]
    """Per unit, spaces by falling preference."""
    size_bytes: NDArray[np.int64]
    """Per unit, all its buffers."""


def space_units(buffers: Buffers, n_spaces: int, choices: Sequence[Sequence[int]] | None) -> SpaceUnits:
    """Join the buffers of groups into units. Without `choices`, every unit may go to all spaces, in their order.

    Raises MalformedInputError for choices that are empty, unknown, repeated, not one row per buffer or different in a
    group, and for a fixed buffer with several choices: its offset belongs to one space.
    """
    rows = [tuple(range(n_spaces))] * len(buffers) if choices is None else [tuple(map(int, row)) for row in choices]
    if len(rows) != len(buffers):
        raise MalformedInputError(f"choices has {len(rows)} rows for {len(buffers)} buffers; give one for each")
    head = list(range(len(buffers)))
    for group in (*buffers.aliases, *buffers.contiguous):
        joined = {head[member] for member in group}
        head = [min(joined) if each in joined else each for each in head]
    for buffer, row in enumerate(rows):
        if not row or len(set(row)) < len(row) or not all(0 <= space < n_spaces for space in row):
            raise MalformedInputError(
                f"buffer {buffers.name(buffer)}: choices {list(row)} do not name spaces, of {n_spaces}, once each"
            )
        if row != rows[head[buffer]]:
            names = f"{buffers.name(buffer)} and {buffers.name(head[buffer])}"
            raise MalformedInputError(f"buffers {names} are in one group, but have other choices; give both the same")
        if len(row) > 1 and buffers.fixed is not None and buffers.fixed[buffer] != FREE:
            raise MalformedInputError(
                f"buffer {buffers.name(buffer)} has a fixed offset and {len(row)} choices of space; give it one"
            )
    heads, unit_of = np.unique(np.asarray(head, np.int64), return_inverse=True)
    sizes = np.zeros(len(heads), np.int64)
    np.add.at(sizes, unit_of, buffers.sizes)
    first_members: list[int] = heads.tolist()
    return SpaceUnits(unit_of.astype(np.int64), tuple(rows[each] for each in first_members), sizes)
