"""The Python state of a step at one time: compared, restored, and searched for changes."""

import inspect
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from lowtide.frameworks.torch.capture.state.places import ABSENT, Place
from lowtide.frameworks.torch.capture.state.reach import find_places
from lowtide.frameworks.torch.internals.fake_tensors import is_fake

_COMPARED_BY_VALUE = (int, float, complex, str, bytes, bool, np.generic)
_SHOWN_LETTERS = 40


@dataclass(frozen=True, slots=True)
class Change:
    """New values of one place."""

    place: Place
    before: list[Any]
    now: list[Any]

    @property
    def is_change(self) -> bool:
        """Whether a value differs."""
        return not _all_same(self.before, self.now)

    def is_like(self, other: "Change") -> bool:
        """Return whether another run made the same change, apart from tensors."""
        if self.place.label != other.place.label or len(self.now) != len(other.now):
            return False
        return all(_same(*pair) or all(map(is_fake, pair)) for pair in zip(self.now, other.now, strict=True))

    def describe(self) -> str:
        """Return the name of the first value that changed, with both values."""
        position = next((i for i, pair in enumerate(zip(self.before, self.now, strict=False)) if not _same(*pair)), -1)
        if len(self.before) != len(self.now) or position < 0:
            longer = self.now if len(self.now) > len(self.before) else self.before
            extra = next((i for i, value in enumerate(longer) if not _holds(self._other(longer), value)), -1)
            return self.place.name(longer, extra) if longer and extra >= 0 else self.place.label
        name = self.place.name(self.before, position)
        shown = [_shown(values[position]) for values in (self.before, self.now)]
        return f"{name} ({' -> '.join(shown)})" if all(shown) else name

    def _other(self, values: list[Any]) -> list[Any]:
        return self.before if values is self.now else self.now


class PythonState:
    """The values that a step's code may read or write, as they are now."""

    def __init__(self, places: Sequence[Place]) -> None:
        self._places = places
        self._values = [place.read() for place in places]
        self.guards = _Guards(
            (place, values, list(map(id, values)))
            for place, values in zip(places, self._values, strict=True)
            if place.is_guarded
        )

    @classmethod
    def of(cls, roots: Mapping[str, object]) -> "PythonState":
        """Return the present state of a step with these functions and modules, by label."""
        return cls(find_places(roots))

    def renewed(self) -> "PythonState":
        """Return the present state, with the same guards, if the state holds."""
        present = PythonState(self._places)
        present.guards = self.guards
        return present

    def holds(self) -> bool:
        """Return whether all values that the step may read are as they were."""
        return all(
            list(map(id, now := place.read())) == identities or _all_same(now, values)
            for place, values, identities in self.guards
        )

    def changes(self) -> list[Change]:
        """Return the places with other values now, random states included."""
        return list(self._changes())

    def _changes(self) -> Iterator[Change]:
        for place, before in zip(self._places, self._values, strict=True):
            now = place.read()
            if not _all_same(now, before):
                yield Change(place, before, now)

    def restore(self) -> None:
        """Put all values back that can be."""
        for change in self.changes():
            if change.place.is_restorable:
                change.place.write(change.before)


class _Guards(list[tuple[Place, list[Any], list[int]]]):
    """Places with their values and the identities of these."""


def _all_same(some: list[Any], others: list[Any]) -> bool:
    return len(some) == len(others) and all(map(_same, some, others))


def _same(one: Any, other: Any) -> bool:
    """Return whether two values are one object or equal numbers or text; tuples of these as well."""
    if one is other:
        return True
    if type(one) is not type(other):
        return False
    if isinstance(one, tuple):
        return _all_same(list(one), list(other))
    if isinstance(one, _COMPARED_BY_VALUE):
        return bool(one == other) or bool(one != one and other != other)  # noqa: PLR0124
    return inspect.ismethod(one) and one == other


def _holds(values: list[Any], wanted: Any) -> bool:
    return any(_same(value, wanted) for value in values)


def _shown(value: Any) -> str:
    if value is ABSENT or isinstance(value, (*_COMPARED_BY_VALUE, type(None))):
        text = repr(value)
        return text if len(text) <= _SHOWN_LETTERS else ""
    return ""
