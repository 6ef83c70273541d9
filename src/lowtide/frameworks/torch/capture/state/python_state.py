"""The Python state of a step at one time: compare, restore, find changes."""

import inspect
from collections.abc import Container, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from types import CodeType
from typing import Any, cast

import numpy as np

from lowtide.frameworks.torch.capture.state.places import ABSENT, Place, WithoutCounters
from lowtide.frameworks.torch.capture.state.reach import Reach, find_places
from lowtide.frameworks.torch.internals.fake_tensors import is_fake

_COMPARED_BY_VALUE = (int, float, complex, str, bytes, bool, np.generic)
_SHOWN_LETTERS = 40


@dataclass(frozen=True, slots=True)
class Change:
    place: Place
    before: list[Any]
    now: list[Any]

    @property
    def positions(self) -> list[int]:
        """Positions of the values that differ; all if the number of values differs."""
        if len(self.before) != len(self.now):
            return list(range(max(len(self.before), len(self.now))))
        return [place for place, pair in enumerate(zip(self.before, self.now, strict=True)) if not _same(*pair)]

    def counts(self, counters: Set[str]) -> list[tuple[int, int]]:
        """Return position and difference of each changed value if all are counters, else nothing."""
        names = self.place.variables(self.before)
        if len(self.before) != len(self.now) or not all(names[place] in counters for place in self.positions):
            return []
        pairs = [(place, self.before[place], self.now[place]) for place in self.positions]
        is_counted = all(type(one) is int and type(other) is int for _, one, other in pairs)
        return [(place, now - before) for place, before, now in pairs] if is_counted else []

    def is_like(self, other: "Change") -> bool:
        if self.place.label != other.place.label or len(self.now) != len(other.now):
            return False
        return all(_same(*pair) or all(map(is_fake, pair)) for pair in zip(self.now, other.now, strict=True))

    @property
    def name(self) -> str:
        if len(self.before) == len(self.now):
            return self.place.name(self.before, self.positions[0])
        fewer, more = sorted((self.before, self.now), key=len)
        added = next((place for place, value in enumerate(more) if not _holds(fewer, value)), None)
        return self.place.label if added is None else self.place.name(more, added)

    def describe(self) -> str:
        if len(self.before) != len(self.now):
            return self.name
        shown = [_shown(values[self.positions[0]]) for values in (self.before, self.now)]
        return f"{self.name} ({' -> '.join(shown)})" if all(shown) else self.name


class PythonState:
    """The present values that a step's code may read or write."""

    def __init__(self, reach: Reach) -> None:
        self._reach = reach
        self._values = [place.read() for place in reach.places]
        self.guards = Guards(
            (guard, values, list(map(id, values)))
            for guard in map(self._guard, reach.places, self._values)
            if guard.is_guarded
            for values in [guard.read()]
        )

    @property
    def counters(self) -> Set[str]:
        return self._reach.counters

    @property
    def sources(self) -> Set[str]:
        """The clock or files, if the code may read them: guards cannot compare their values."""
        return self._reach.sources

    def _guard(self, place: Place, values: list[Any]) -> Place:
        has_counter = bool(self.counters) and not self.counters.isdisjoint(place.variables(values))
        return WithoutCounters(place, self.counters) if has_counter else place

    @classmethod
    def of(cls, roots: Mapping[str, object], executed: Container[CodeType] | None = None) -> "PythonState":
        """Return the present state of a step with these functions and modules, by label.

        If `executed` is given, other code is not followed.
        """
        return cls(find_places(roots, executed))

    def renewed(self) -> "PythonState":
        """Return the present state with the same guards."""
        present = PythonState(self._reach)
        present.guards = self.guards
        return present

    def holds(self) -> bool:
        return all(
            list(map(id, now := guard.read())) == identities or all_same(now, values)
            for guard, values, identities in self.guards
        )

    def guarded_values(self) -> list[list[Any]]:
        return [guard.read() for guard, _, _ in self.guards]

    def changes_since(self, guarded_values: Sequence[list[Any]] | None) -> list[Change]:
        """Return the guards that differ from earlier values (default: those of this state)."""
        before = guarded_values or [values for _, values, _ in self.guards]
        pairs = zip(self.guards, before, strict=True)
        changes = [Change(guard, values, guard.read()) for (guard, _, _), values in pairs]
        return [change for change in changes if change.positions]

    def changes(self) -> list[Change]:
        """Return the changed places, random states included."""
        return list(self._changes())

    def _changes(self) -> Iterator[Change]:
        for place, before in zip(self._reach.places, self._values, strict=True):
            now = place.read()
            if not all_same(now, before):
                yield Change(place, before, now)

    def restore(self) -> None:
        for change in self.changes():
            if change.place.is_restorable:
                change.place.write(change.before)


class Guards(list[tuple[Place, list[Any], list[int]]]):
    """Places with their values and the `id` of each."""


def all_same(some: list[Any], others: list[Any]) -> bool:
    """Return whether all values of two lists are one object or equal numbers, text or tuples."""
    return len(some) == len(others) and all(map(_same, some, others))


def _same(one: Any, other: Any) -> bool:
    if one is other:
        return True
    if type(one) is not type(other):
        return False
    if isinstance(one, tuple):
        return all_same(list(cast("tuple[Any, ...]", one)), list(other))
    if isinstance(one, _COMPARED_BY_VALUE):
        return bool(one == other) or bool(one != one and other != other)
    return inspect.ismethod(one) and one == other


def _holds(values: list[Any], wanted: Any) -> bool:
    return any(_same(value, wanted) for value in values)


def _shown(value: Any) -> str:
    if value is ABSENT or value is None or isinstance(value, _COMPARED_BY_VALUE):
        text = repr(cast("object", value))
        return text if len(text) <= _SHOWN_LETTERS else ""
    return ""
