"""From one recorded run to addresses: the live ranges of its blocks, packed, and noted in a file's metadata."""

import json
from collections.abc import Iterable, Mapping
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from lowtide.engine.packing import Buffers, pack
from lowtide.frameworks.arena.allocator import OUTSIDE, NativeAllocator, RunAddresses

Key = tuple[Any, ...]
"""What runs of one kind have in common: how they are called, and the types and shapes of their inputs."""

_ALIGNMENT = 64
_LEAST_LENT_BYTES = 2**16
_LEAST_GAIN = 0.01
"""Pages are lent where that saves such a share of the arena: to lend them takes two calls of the system."""
_MOST_ARENA_BYTES = 2**40


def plan_addresses(allocator: NativeAllocator, recorded: NDArray[np.int64]) -> RunAddresses:
    """Pack the allocations of a run, rows as `ArenaRun.recorded` gives them, into the smallest arena found.

    What outlives its run stays out of the arena, so that it never stands in the way of the next; or it is made in whole
    pages of the arena that are lent to it, where that needs less in all.
    """
    outside = _packed(allocator, recorded, recorded[:, 2] >= 0)
    lent = _packed(allocator, recorded, (recorded[:, 2] >= 0) | (recorded[:, 0] >= _LEAST_LENT_BYTES))
    gain = outside.arena_bytes + outside.outliving_bytes - lent.arena_bytes - lent.outliving_bytes
    return lent if gain > _LEAST_GAIN * outside.arena_bytes else outside


def _packed(allocator: NativeAllocator, recorded: NDArray[np.int64], inside: NDArray[np.bool_]) -> RunAddresses:
    made, freed = recorded[inside, 1], recorded[inside, 2]
    outlives = freed < 0
    sizes = np.array([allocator.block_bytes(size) for size in recorded[inside, 0].tolist()], np.int64)
    sizes[outlives] = [allocator.whole_pages(size) for size in sizes[outlives].tolist()]
    alignment = np.where(outlives, allocator.whole_pages(1), _ALIGNMENT)
    end = int(recorded[:, 1:].max(initial=0)) + 1
    packed = pack(Buffers(made, np.where(outlives, end, freed), sizes, alignment=alignment), effort="fast")
    offsets = np.full(len(recorded), OUTSIDE, np.int64)
    offsets[inside] = np.where(outlives, OUTSIDE - 1 - packed.offsets, packed.offsets)
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
    ends = [_end(allocator, size, at) for size, at in zip(sizes, offsets, strict=True) if at != OUTSIDE]
    arena_bytes = max(ends, default=0)
    if asked.ndim != 1 or not 0 <= arena_bytes <= _MOST_ARENA_BYTES or (asked < 0).any():
        raise ValueError("no addresses")
    found = _as_tuple(key)
    hash(found)
    return found, RunAddresses(allocator, asked, places, arena_bytes)


def _end(allocator: NativeAllocator, size: int, offset: int) -> int:
    bytes_ = allocator.block_bytes(size)
    return offset + bytes_ if offset >= 0 else OUTSIDE - 1 - offset + allocator.whole_pages(bytes_)


def _as_tuple(value: Any) -> Any:
    return tuple(map(_as_tuple, cast("list[Any]", value))) if isinstance(value, list) else value
