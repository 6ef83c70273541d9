"""What repeated layers hold as one row: buffers of one kind that the same line makes in modules numbered differently."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

_NUMBER = re.compile(r"(?<![^.])\d+(?![^. ])")
"""A part of a module's path that is nothing but a number."""


class _Held(Protocol):
    """A buffer that is live, and what is known of the op that made it."""

    @property
    def space(self) -> str: ...
    @property
    def size_bytes(self) -> int: ...
    @property
    def kind(self) -> str | None: ...
    @property
    def made_at(self) -> str | None: ...


HeldT = TypeVar("HeldT", bound=_Held)


@dataclass(frozen=True, slots=True)
class Layers(Generic[HeldT]):
    """Buffers that repeated layers hold, or one buffer that stands alone."""

    members: tuple[HeldT, ...]
    made_at: str | None
    """Where the user's program makes them, numbers of modules as "*" where there are several."""

    @property
    def size_bytes(self) -> int:
        """What they take together."""
        return sum(member.size_bytes for member in self.members)

    @property
    def is_repeated(self) -> bool:
        """Whether there are several."""
        return len(self.members) > 1

    @property
    def title(self) -> str:
        """The kind of op and how many: "gelu x 12"."""
        return f"{(self.members[0].kind or '').rpartition('.')[2]} x {len(self.members)}"


def by_layers(holders: Sequence[HeldT]) -> list[Layers[HeldT]]:
    """Return holders with those of repeated layers as one, largest first. Holders of unknown source stay alone."""
    groups: dict[object, list[HeldT]] = {}
    for place, holder in enumerate(holders):
        pattern = None if holder.made_at is None or holder.kind is None else _pattern(holder.made_at)
        groups.setdefault((holder.space, holder.kind, pattern) if pattern else place, []).append(holder)
    found = [
        Layers(tuple(group), _pattern(group[0].made_at or "") if len(group) > 1 else group[0].made_at)
        for group in groups.values()
    ]
    return sorted(found, key=lambda layers: -layers.size_bytes)


def _pattern(source: str) -> str:
    path, at, line = source.rpartition("at ")
    return f"{_NUMBER.sub('*', path)}{at}{line}"
