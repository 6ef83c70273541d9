"""Runs whose blocks lie in one arena: each kind is recorded once, packed, and served at its addresses from then on."""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from lowtide.frameworks.arena.addresses import Key, addresses_to_text, plan_addresses
from lowtide.frameworks.arena.allocator import Arena, ArenaRun, RunAddresses

Value = TypeVar("Value")

_MOST_RECORDINGS = 4
"""How often runs of one kind are recorded: the first may allocate what later ones keep, and data may decide sizes."""
_MOST_KINDS = 64
"""Of so many kinds of runs (shapes of the inputs) the addresses are kept; beyond, the first one is forgotten."""


@dataclass(slots=True, kw_only=True)
class ArenaUse:
    """What became of the runs."""

    recorded: int = 0
    """Runs that were recorded, to learn addresses: they allocate as usual."""
    served: int = 0
    """Runs of which every allocation lay where it was planned."""
    fallbacks: Counter[str] = field(default_factory=Counter[str])
    """Runs that went on by ordinary allocation, by the reason."""


@dataclass(slots=True)
class _Kind:
    """Runs with inputs of the same shapes."""

    addresses: RunAddresses | None = None
    recordings: int = 0
    stale: bool = True


class PlannedRuns:
    """All runs of one program in one arena.

    A run that allocates otherwise than the one that was recorded (sizes that depend on data, another thread in the
    arena) goes on by ordinary allocation: `use` counts that, and nothing else changes. What outlives its run never lies
    in the arena.
    """

    def __init__(self, arena: Arena, noted: Mapping[Key, RunAddresses] | None = None) -> None:
        """Take the arena, which others may share, and addresses that are known already."""
        self.arena = arena
        self.use = ArenaUse()
        self._kinds = {key: _Kind(addresses, stale=False) for key, addresses in (noted or {}).items()}

    def within(self, key: Key, call: Callable[[], Value]) -> Value:
        """Return what a call gives; blocks that this thread allocates meanwhile are those of a run of this kind."""
        kind = self._kind(key)
        addresses = None if kind.stale else kind.addresses
        run = ArenaRun(self.arena, addresses)
        try:
            result = call()
        except BaseException:
            run.end()
            raise
        report = run.end()
        if addresses is None:
            self.use.recorded += 1
            kind.recordings += 1
            kind.stale = False
            kind.addresses = plan_addresses(self.arena.allocator, run.recorded(report.allocations))
        elif report.deviation:
            self.use.fallbacks[report.deviation] += 1
            kind.stale = report.deviation != "arena in use" and kind.recordings < _MOST_RECORDINGS
        else:
            self.use.served += 1
        return result

    @property
    def reserved_bytes(self) -> int:
        """The most that a run of any kind so far needs: its part of the arena, and its results outside of it."""
        known = [kind.addresses for kind in self._kinds.values() if kind.addresses is not None]
        return max((addresses.arena_bytes + addresses.outliving_bytes for addresses in known), default=0)

    def noted_addresses(self) -> str | None:
        """Return the addresses that were learned last as text; None where none were."""
        learned = [(key, kind.addresses) for key, kind in self._kinds.items() if kind.addresses is not None]
        return addresses_to_text(dict(learned[-1:])) if learned else None

    def _kind(self, key: Key) -> _Kind:
        kind = self._kinds.get(key)
        if kind is None:
            kind = self._kinds.setdefault(key, _Kind())
            while len(self._kinds) > _MOST_KINDS:
                self._kinds.pop(next(iter(self._kinds)), None)
        return kind


class RunsInArena:
    """Something whose runs lie in one arena, and how it uses that."""

    _runs: PlannedRuns

    @property
    def arena(self) -> Arena:
        """Where what runs make lies."""
        return self._runs.arena

    @property
    def use(self) -> ArenaUse:
        """What became of the runs so far."""
        return self._runs.use

    @property
    def reserved_bytes(self) -> int:
        """The most that a run of any kind so far needs: its part of the arena, and its results outside of it."""
        return self._runs.reserved_bytes
