"""Runs in one arena, by kind."""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from lowtide.engine.packing import Buffers, pack
from lowtide.frameworks.arena.allocator import OUTSIDE, Arena, ArenaRun, NativeAllocator, RunAddresses

Key = tuple[Any, ...]
"""The call, and the types and shapes of its inputs."""
_ALIGNMENT = 64
_LEAST_LENT_BYTES = 2**16
_LEAST_GAIN = 0.01
"""Least share of the arena saved to lend pages, which needs two system calls."""
_MAX_ARENA_BYTES = 2**40
Value = TypeVar("Value")
_MAX_RECORDINGS = 4
"""Recordings per kind, since sizes may change from run to run."""
_MAX_KINDS = 64


def plan_addresses(allocator: NativeAllocator, recorded: NDArray[np.int64]) -> RunAddresses:
    """Pack the allocations of a run, rows of `ArenaRun.recorded`.

    Blocks that outlive the run are outside the arena, or in whole pages lent from it if that needs less in total.
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
    rows = [[key, found.sizes.tolist(), found.offsets.tolist()] for key, found in addresses.items()]
    return json.dumps(rows, separators=(",", ":"))


def joined_texts(texts: Iterable[str]) -> str:
    return json.dumps([row for text in texts for row in json.loads(text)], separators=(",", ":"))


def addresses_from_text(allocator: NativeAllocator, text: str) -> dict[Key, RunAddresses]:
    """Return the addresses by kind from a text, empty if it is invalid.

    The text need not be trusted: the allocator never hands out a byte twice, and a run with other sizes uses ordinary
    allocation.
    """
    try:
        return dict(_from_row(allocator, *row) for row in json.loads(text))
    except (ValueError, TypeError, OverflowError, RecursionError):
        return {}


def _from_row(allocator: NativeAllocator, key: Any, sizes: Any, offsets: Any) -> tuple[Key, RunAddresses]:
    asked, places = np.array(sizes, np.int64), np.array(offsets, np.int64)
    ends = [_end(allocator, size, at) for size, at in zip(sizes, offsets, strict=True) if at != OUTSIDE]
    arena_bytes = max(ends, default=0)
    if asked.ndim != 1 or not 0 <= arena_bytes <= _MAX_ARENA_BYTES or (asked < 0).any():
        raise ValueError("invalid addresses")
    found = _as_tuple(key)
    hash(found)
    return found, RunAddresses(allocator, asked, places, arena_bytes)


def _end(allocator: NativeAllocator, size: int, offset: int) -> int:
    bytes_ = allocator.block_bytes(size)
    return offset + bytes_ if offset >= 0 else OUTSIDE - 1 - offset + allocator.whole_pages(bytes_)


def _as_tuple(value: Any) -> Any:
    return tuple(map(_as_tuple, cast("list[Any]", value))) if isinstance(value, list) else value


@dataclass(slots=True, kw_only=True)
class ArenaUse:
    """Counts of runs by result."""

    recorded: int = 0
    """Runs recorded with ordinary allocation."""
    served: int = 0
    """Runs with every allocation placed as planned."""
    fallbacks: Counter[str] = field(default_factory=Counter[str])
    """Runs that fell back to ordinary allocation, by reason."""


@dataclass(slots=True)
class _Kind:
    addresses: RunAddresses | None = None
    recordings: int = 0
    stale: bool = True


class PlannedRuns:
    """All runs of one program in one arena.

    A run that allocates differently from the recorded one falls back to ordinary allocation, counted in `use`.
    """

    def __init__(self, arena: Arena, noted: Mapping[Key, RunAddresses] | None = None) -> None:
        self.arena = arena
        self.use = ArenaUse()
        self._kinds = {key: _Kind(addresses, stale=False) for key, addresses in (noted or {}).items()}

    def within(self, key: Key, call: Callable[..., Value], *arguments: Any) -> Value:
        """Return the result of `call`; allocations of this thread belong to the kind `key`."""
        kind = self._kinds.get(key) or self._new_kind(key)
        addresses = kind.addresses
        if addresses is None or kind.stale:
            return self._record(kind, call, *arguments)
        run = ArenaRun(self.arena, addresses)
        try:
            result = call(*arguments)
        finally:
            deviation = run.finish()
        if deviation:
            self.use.fallbacks[deviation] += 1
            kind.stale = deviation != "arena in use" and kind.recordings < _MAX_RECORDINGS
        else:
            self.use.served += 1
        return result

    def _record(self, kind: _Kind, call: Callable[..., Value], *arguments: Any) -> Value:
        run = ArenaRun(self.arena, None)
        try:
            result = call(*arguments)
        finally:
            report = run.end()
        self.use.recorded += 1
        kind.recordings += 1
        kind.stale = False
        kind.addresses = plan_addresses(self.arena.allocator, run.recorded(report.allocations))
        return result

    @property
    def reserved_bytes(self) -> int:
        """The most that a run of any kind needs, with its results outside."""
        known = [kind.addresses for kind in self._kinds.values() if kind.addresses is not None]
        return max((addresses.arena_bytes + addresses.outliving_bytes for addresses in known), default=0)

    def noted_addresses(self) -> str | None:
        """Return the last recorded addresses as text, if any."""
        learned = [(key, kind.addresses) for key, kind in self._kinds.items() if kind.addresses is not None]
        return addresses_to_text(dict(learned[-1:])) if learned else None

    def _new_kind(self, key: Key) -> _Kind:
        kind = self._kinds.setdefault(key, _Kind())
        while len(self._kinds) > _MAX_KINDS:
            self._kinds.pop(next(iter(self._kinds)), None)
        return kind


class RunsInArena:
    """A program with its runs in one arena."""

    _runs: PlannedRuns

    @property
    def arena(self) -> Arena:
        return self._runs.arena

    @property
    def use(self) -> ArenaUse:
        """Counts of runs by result."""
        return self._runs.use

    @property
    def reserved_bytes(self) -> int:
        """See `PlannedRuns.reserved_bytes`."""
        return self._runs.reserved_bytes
