"""Folding of buffers that repeat in every layer."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from lowtide.core.units import format_bytes

_MOST_NAMED = 4
_NUMBER = re.compile(r"[_.\-/]?\d+")
_LAYER = re.compile(r"(?<![^.])\d+(?![^. ])")
"""A number between the dots of a module path."""


class Held(Protocol):
    """A live buffer and its op, like `BoundHolder`."""

    @property
    def space(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def size_bytes(self) -> int: ...
    @property
    def lifetime(self) -> str: ...
    @property
    def kind(self) -> str | None: ...
    @property
    def made_at(self) -> str | None: ...


HeldT = TypeVar("HeldT", bound=Held)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fold(Generic[HeldT]):
    """Buffers that differ only in their layer."""

    label: str
    holders: tuple[HeldT, ...]
    made_at: str | None
    """Place in the user's program, with "*" for layers."""

    @property
    def size_bytes(self) -> int:
        return sum(holder.size_bytes for holder in self.holders)

    @property
    def first(self) -> HeldT:
        return self.holders[0]


def stem(name: str) -> str:
    return _NUMBER.sub("", name) or name


def fold(holders: Iterable[HeldT]) -> list[Fold[HeldT]]:
    """Fold buffers of the same class, op kind and source line, in modules that differ only in numbers.

    Without a source line, those of equal size whose names differ only in numbers. Largest sum first.
    """
    groups: dict[tuple[str, ...], list[HeldT]] = {}
    for holder in holders:
        if holder.made_at is None:
            place = ("", stem(holder.name), str(holder.size_bytes))
        else:
            place = (_without_layers(holder.made_at), "" if holder.kind else holder.name, "")
        groups.setdefault((holder.space, holder.lifetime, holder.kind or "", *place), []).append(holder)
    return sorted(map(_fold, groups.values()), key=lambda each: -each.size_bytes)


def named_largest(holders: Iterable[HeldT]) -> str:
    """Name the largest folds with bytes, and count the others, in one line."""
    rows = fold(holders)
    parts = [f"{row.label} ({format_bytes(row.size_bytes)})" for row in rows[:_MOST_NAMED]]
    rest = rows[_MOST_NAMED:]
    if rest:
        count = sum(len(row.holders) for row in rest)
        parts.append(f"{count} more ({format_bytes(sum(row.size_bytes for row in rest))})")
    return ", ".join(parts)


def _fold(group: list[HeldT]) -> Fold[HeldT]:
    first = group[0]
    if len(group) == 1:
        return Fold(label=first.name, holders=(first,), made_at=first.made_at)
    named = _short(first.kind or "") or stem(first.name)
    where = None if first.made_at is None else _without_layers(first.made_at)
    return Fold(label=f"{named} x {len(group)}", holders=tuple(group), made_at=where)


def _short(kind: str) -> str:
    parts = kind.split(".")
    return parts[1] if len(parts) > 2 else parts[-1]


def _without_layers(made_at: str) -> str:
    path, at, line = made_at.rpartition("at ")
    return f"{_LAYER.sub('*', path)}{at}{line}"
