"""Holders that repeat, layer by layer, as one row: "relu x 8"."""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from lowtide.analysis.holders_at_peak import Holder

_NUMBER = re.compile(r"[_.\-/]?\d+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Fold:
    """Holders alike but for the numbers in their names, one of them first."""

    label: str
    holders: tuple[Holder, ...]

    @property
    def size_bytes(self) -> int:
        """Bytes of all together."""
        return sum(holder.size_bytes for holder in self.holders)

    @property
    def first(self) -> Holder:
        """The holder that stands for all."""
        return self.holders[0]


def stem(name: str) -> str:
    """Return a name without its numbers, by which layers tell their copies apart; all of it if nothing is left."""
    return _NUMBER.sub("", name) or name


def fold(holders: Iterable[Holder]) -> list[Fold]:
    """Fold holders of one size, class and maker whose names differ by numbers alone; the most bytes together first."""
    alike: dict[tuple[str, ...], list[Holder]] = {}
    for holder in holders:
        maker = "" if holder.op is None else stem(holder.op)
        key = (holder.space, stem(holder.name), maker, str(holder.size_bytes), holder.lifetime)
        alike.setdefault(key, []).append(holder)
    folds = [Fold(label=_label(group), holders=tuple(group)) for group in alike.values()]
    return sorted(folds, key=lambda each: -each.size_bytes)


def _label(group: list[Holder]) -> str:
    first = group[0]
    return first.name if len(group) == 1 else f"{stem(first.op or first.name)} x {len(group)}"
