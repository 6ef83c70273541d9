"""Sessions that share one arena: together they need what the largest of them needs."""

import os
from typing import Any

from lowtide.frameworks.arena.allocator import Arena, native_allocator
from lowtide.frameworks.onnx.running.planned_session import Session


class Pool:
    """Sessions that run one at a time, in one arena.

    Where two of them run at once, both are right: the second goes on by ordinary allocation, and its `use` counts that
    as "arena in use".
    """

    def __init__(self) -> None:
        self._arena = Arena(native_allocator())
        self._sessions: list[Session] = []

    def open(self, path_or_bytes: str | bytes | os.PathLike[str], *arguments: Any, **more: Any) -> Session:
        """Open a model in the pool; arguments are those of `Session`."""
        session = Session(path_or_bytes, *arguments, arena=self._arena, **more)
        self._sessions.append(session)
        return session

    @property
    def sessions(self) -> tuple[Session, ...]:
        """All that were opened."""
        return tuple(self._sessions)

    @property
    def arena_bytes(self) -> int:
        """The bytes of the arena: what the largest run so far needs."""
        return self._arena.size_bytes

    def trim(self) -> bool:
        """Give the arena's pages back to the system until the next run; return whether no run needed them."""
        return self._arena.trim()
