"""Holders that repeat, layer by layer, as one row: "gelu x 12"."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from lowtide.core.units import ByteUnit

_MOST_NAMED = 4
_NUMBER = re.compile(r"[_.\-/]?\d+")
_LAYER = re.compile(r"(?<![^.])\d+(?![^. ])")
"""A part of a module's path that is nothing but a number."""


class Held(Protocol):
    """A buffer that is live, and what is known of the op that made it."""

    @property
    def space(self) -> str:
        """The memory space that it is in."""
        ...

    @property
    def name(self) -> str:
        """What it is called."""
        ...

    @property
    def size_bytes(self) -> int:
        """Its bytes."""
        ...

    @property
    def lifetime(self) -> str:
        """Its lifetime class."""
        ...

    @property
    def kind(self) -> str | None:
        """The kind of the op; None where none made it."""
        ...

    @property
    def made_at(self) -> str | None:
        """Where the user's program has the op; None where nobody said."""
        ...


HeldT = TypeVar("HeldT", bound=Held)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fold(Generic[HeldT]):
    """Holders alike but for the layer that they are of, one of them first."""

    label: str
    holders: tuple[HeldT, ...]
    made_at: str | None
    """Where the user's program makes them, layers as "*" where there are several; None where nobody said."""

    @property
    def size_bytes(self) -> int:
        """Bytes of all together."""
        return sum(holder.size_bytes for holder in self.holders)

    @property
    def first(self) -> HeldT:
        """The holder that stands for all."""
        return self.holders[0]


def stem(name: str) -> str:
    """Return a name without its numbers, by which layers tell their copies apart; all of it if nothing is left."""
    return _NUMBER.sub("", name) or name


def fold(holders: Iterable[HeldT]) -> list[Fold[HeldT]]:
    """Fold holders of one class and kind of op that one line makes in modules whose paths differ by numbers alone.

    Where nobody said which line, those of one size are folded whose names differ by numbers alone. The most bytes
    together come first.
    """
    alike: dict[tuple[str, ...], list[HeldT]] = {}
    for holder in holders:
        if holder.made_at is None:
            told = ("", stem(holder.name), str(holder.size_bytes))
        else:
            told = (_without_layers(holder.made_at), "" if holder.kind else holder.name, "")
        alike.setdefault((holder.space, holder.lifetime, holder.kind or "", *told), []).append(holder)
    return sorted(map(_fold, alike.values()), key=lambda each: -each.size_bytes)


def named_largest(holders: Iterable[HeldT], unit: ByteUnit) -> str:
    """Return one line that names what holds most, layers folded, with its bytes; the rest is counted."""
    rows = fold(holders)
    parts = [f"{row.label} ({unit.write(row.size_bytes)})" for row in rows[:_MOST_NAMED]]
    rest = rows[_MOST_NAMED:]
    if rest:
        count = sum(len(row.holders) for row in rest)
        parts.append(f"{count} more ({unit.write(sum(row.size_bytes for row in rest))})")
    return ", ".join(parts)


def _fold(group: list[HeldT]) -> Fold[HeldT]:
    first = group[0]
    if len(group) == 1:
        return Fold(label=first.name, holders=(first,), made_at=first.made_at)
    named = _short(first.kind or "") or stem(first.name)
    where = None if first.made_at is None else _without_layers(first.made_at)
    return Fold(label=f"{named} x {len(group)}", holders=tuple(group), made_at=where)


def _short(kind: str) -> str:
    """Return a kind of op without its library and overload: "mul" for "aten.mul.Tensor", "gelu" for "aten.gelu"."""
    parts = kind.split(".")
    return parts[1] if len(parts) > 2 else parts[-1]


def _without_layers(made_at: str) -> str:
    path, at, line = made_at.rpartition("at ")
    return f"{_LAYER.sub('*', path)}{at}{line}"
