"""The blobs of a running net."""

from collections.abc import Iterable, Mapping
from typing import Any

from numpy.typing import NDArray

from lowtide.core.errors import UnsupportedError

Array = NDArray[Any]


class Workspace:
    """Blobs by name."""

    def __init__(self, blobs: Mapping[str, Array], uncounted: Iterable[str] = ()) -> None:
        self._blobs: dict[str, Array] = dict(blobs)
        self._aliases: dict[str, str] = {}
        self._borrowed: dict[str, Array] = {}
        self._uncounted = frozenset(uncounted)
        self._live_bytes = sum(self._counted(name, array) for name, array in self._blobs.items())
        self.peak_bytes = self._live_bytes

    def read(self, name: str, where: str) -> Array:
        home = self._home(name)
        if home not in self._blobs:
            raise UnsupportedError(f"{where} reads {name!r}, which is empty; give it a value")
        return self._blobs[home]

    def write(self, name: str, array: Array) -> None:
        home = self._home(name)
        rows = self._borrowed.get(home)
        if rows is not None and rows.size == array.size:
            rows[...] = array.reshape(rows.shape)
            array = rows.reshape(array.shape)
        else:
            self._borrowed.pop(home, None)
        self.free(name)
        self._blobs[home] = array
        self._live_bytes += self._counted(home, array)
        self.peak_bytes = max(self.peak_bytes, self._live_bytes)

    def borrow(self, name: str, rows: Array) -> None:
        """Let a blob use outer storage; later arrays of its size are copied there."""
        self._borrowed[name] = rows
        self.write(name, rows)

    def alias(self, name: str, other: str) -> None:
        self._aliases[name] = self._home(other)

    def free(self, name: str) -> None:
        home = self._home(name)
        former = self._blobs.pop(home, None)
        if former is not None:
            self._live_bytes -= self._counted(home, former)

    def arrays(self, names: Iterable[str]) -> dict[str, Array]:
        return {name: self._blobs[self._home(name)] for name in names if self._home(name) in self._blobs}

    def _home(self, name: str) -> str:
        return self._aliases.get(name, name)

    def _counted(self, name: str, array: Array) -> int:
        return 0 if name in self._uncounted else int(array.nbytes)
