"""From one recorded run to addresses: the live ranges of its blocks, packed, and noted in a file's metadata."""

import json
from collections.abc import Iterable, Mapping
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from lowtide.frameworks.onnx.running.allocator import NativeAllocator, RunAddresses
from lowtide.packing import Buffers, pack

Key = tuple[Any, ...]
"""What runs of one kind have in common: how they are called, and the types and shapes of their inputs."""

_ALIGNMENT = 64
_MOST_ARENA_BYTES = 2**40


def plan_addresses(allocator: NativeAllocator, recorded: NDArray[np.int64]) -> RunAddresses:
    """Pack the allocations of a run, rows as `ArenaRun.recorded` gives them, into the smallest arena found.

    What outlives its run stays out of the arena, so that it never stands in the way of the next.
    """
    inside = np.flatnonzero(recorded[:, 2] >= 0)
    sizes = np.array([allocator.block_bytes(size) for size in recorded[inside, 0].tolist()], np.int64)
    packed = pack(Buffers(recorded[inside, 1], recorded[inside, 2], sizes, alignment=_ALIGNMENT), effort="fast")
    offsets = np.full(len(recorded), -1, np.int64)
    offsets[inside] = packed.offsets
    return RunAddresses(allocator, recorded[:, 0], offsets, packed.arena_bytes)


def addresses_to_text(addresses: Mapping[Key, RunAddresses]) -> str:
    """Return the addresses of several kinds of runs as text."""
    rows = [[key, found.sizes.tolist(), found.offsets.tolist()] for key, found in addresses.items()]
    return json.dumps(rows, separators=(",", ":"))


def joined_texts(texts: Iterable[str]) -> str:
    """Return as one text what several say."""
    return json.dumps([row for text in texts for row in json.loads(text)], separators=(",", ":"))


def addresses_from_text(allocator: NativeAllocator, text: str) -> dict[Key, RunAddresses]:
    """Return the addresses by kind that a file notes; none where the text is anything else.

    Nothing is believed: whatever stands there, the allocator gives no byte twice, and sizes that are not asked for make
    a run go on by ordinary allocation.
    """
    try:
        return dict(_from_row(allocator, *row) for row in json.loads(text))
    except (ValueError, TypeError, OverflowError, RecursionError):
        return {}


def _from_row(allocator: NativeAllocator, key: Any, sizes: Any, offsets: Any) -> tuple[Key, RunAddresses]:
    asked, places = np.array(sizes, np.int64), np.array(offsets, np.int64)
    ends = [at + allocator.block_bytes(size) for size, at in zip(sizes, offsets, strict=True) if at >= 0]
    arena_bytes = max(ends, default=0)
    if asked.ndim != 1 or not 0 <= arena_bytes <= _MOST_ARENA_BYTES or (asked < 0).any():
        raise ValueError("no addresses")
    found = _as_tuple(key)
    hash(found)
    return found, RunAddresses(allocator, asked, places, arena_bytes)


def _as_tuple(value: Any) -> Any:
    return tuple(map(_as_tuple, cast("list[Any]", value))) if isinstance(value, list) else value
