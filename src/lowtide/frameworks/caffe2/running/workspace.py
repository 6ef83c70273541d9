"""The blobs of a running net, and a ledger of their bytes."""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lowtide.core.errors import UnsupportedError

Array = NDArray[Any]


class Workspace:
    """Blobs by name. Writing a blob takes over its storage where one of that name is there already."""

    def __init__(self, blobs: Mapping[str, Array], uncounted: Iterable[str] = ()) -> None:
        """Blobs named in `uncounted`, the parameters, are in no figure."""
        self._blobs: dict[str, Array] = dict(blobs)
        self._aliases: dict[str, str] = {}
        self._lent: dict[str, Array] = {}
        self._uncounted = frozenset(uncounted)
        self.live_bytes = sum(self._counted(name, array) for name, array in self._blobs.items())
        self.peak_bytes = self.live_bytes
        """The most bytes that blobs held at once."""

    def __contains__(self, name: str) -> bool:
        return self._home(name) in self._blobs

    def read(self, name: str, who: str) -> Array:
        """Return what a blob holds; raises UnsupportedError where it was never written, or freed."""
        home = self._home(name)
        if home not in self._blobs:
            raise UnsupportedError(
                f"{who} reads {name!r}, which holds nothing; give a value for it, or write it before"
            )
        return self._blobs[home]

    def lend(self, name: str, rows: Array) -> None:
        """Give a blob storage from outside: arrays that are written to it go there, until one has another size."""
        self._lent[name] = rows
        self.write(name, rows)

    def write(self, name: str, array: Array) -> None:
        """Put an array into a blob."""
        home = self._home(name)
        lent = self._lent.get(home)
        if lent is not None and lent.size == array.size:
            lent[...] = array.reshape(lent.shape)
            array = lent.reshape(array.shape)
        else:
            self._lent.pop(home, None)
        former = self._blobs.get(home)
        if former is not None:
            self.live_bytes -= self._counted(home, former)
        self._blobs[home] = array
        self.live_bytes += self._counted(home, array)
        self.peak_bytes = max(self.peak_bytes, self.live_bytes)

    def alias(self, name: str, other: str) -> None:
        """Make a name stand for the storage of another blob."""
        self._aliases[name] = self._home(other)

    def free(self, name: str) -> None:
        """End a blob."""
        home = self._home(name)
        former = self._blobs.pop(home, None)
        if former is not None:
            self.live_bytes -= self._counted(home, former)

    def take(self, names: Iterable[str]) -> dict[str, Array]:
        """Return what some blobs hold, of those that hold anything."""
        return {name: self._blobs[self._home(name)] for name in names if name in self}

    def _home(self, name: str) -> str:
        return self._aliases.get(name, name)

    def _counted(self, name: str, array: Array) -> int:
        return 0 if name in self._uncounted else int(array.nbytes)


def filled(shape: tuple[int, ...], dtype: str, seed: int, below: int = 2) -> Array:
    """Return made-up contents, the same for the same seed: floats around 0, or whole numbers below some bound."""
    rng = np.random.default_rng(seed)
    if np.issubdtype(np.dtype(dtype), np.floating):
        return rng.standard_normal(shape).astype(dtype)
    return rng.integers(0, below, shape).astype(dtype)
