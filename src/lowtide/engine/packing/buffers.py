"""The input of packing."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lowtide.core.errors import MalformedInputError

Ints = NDArray[np.int64]
FREE = -1
"""No offset, in `fixed` and `hints`."""
_MOST_BYTES = 2**62


@dataclass(frozen=True, slots=True, eq=False, init=False)
class Buffers:
    """Buffers of one memory space, one array entry each, from array-likes of integers.

    Raises MalformedInputError for the first invalid buffer.
    """

    first: Ints
    """The first step of each live range."""
    last: Ints
    """The end of each half-open live range; `first` if never alive."""
    sizes: Ints
    alignment: Ints
    """Every offset is a multiple of this; one figure may apply to all."""
    fixed: Ints | None
    """Required offsets, FREE for none."""
    hints: Ints | None
    """Preferred offsets, FREE for none."""
    gaps: Ints | None
    """Rows (buffer, first, last): half-open ranges in which a buffer is not alive."""
    aliases: tuple[tuple[int, ...], ...]
    """Groups with one offset, which may overlap."""
    contiguous: tuple[tuple[int, ...], ...]
    """Groups of adjacent buffers in address order. Each starts at a multiple of all its alignments, including those of
    aliases."""
    may_overlap: Ints | None
    """Rows of two buffers that may share bytes, such as an in-place pair."""
    apart: Ints | None
    """Rows of two buffers that must never share bytes."""
    names: tuple[str, ...] | None
    """Names for messages and files; positions by default."""

    def __init__(
        self,
        first: ArrayLike,
        last: ArrayLike,
        sizes: ArrayLike,
        *,
        alignment: ArrayLike = 1,
        fixed: ArrayLike | None = None,
        hints: ArrayLike | None = None,
        gaps: ArrayLike | None = None,
        aliases: Iterable[Iterable[int]] = (),
        contiguous: Iterable[Iterable[int]] = (),
        may_overlap: ArrayLike | None = None,
        apart: ArrayLike | None = None,
        names: Iterable[str] | None = None,
    ) -> None:
        n = len(_integers("sizes", sizes))
        columns: dict[str, Any] = {
            "first": _column("first", first, n),
            "last": _column("last", last, n),
            "sizes": _column("sizes", sizes, n),
            "alignment": _column("alignment", np.full(n, alignment) if np.ndim(alignment) == 0 else alignment, n),
            "fixed": _offsets("fixed", fixed, n),
            "hints": _offsets("hints", hints, n),
            "gaps": _rows("gaps", gaps, 3),
            "aliases": _groups(aliases),
            "contiguous": _groups(contiguous),
            "may_overlap": _rows("may_overlap", may_overlap, 2),
            "apart": _rows("apart", apart, 2),
            "names": None if names is None else tuple(map(str, names)),
        }
        for attribute, value in columns.items():
            object.__setattr__(self, attribute, value)
        self._check()

    def __len__(self) -> int:
        return len(self.sizes)

    def name(self, buffer: int) -> str:
        return str(buffer) if self.names is None else self.names[buffer]

    def take(self, ids: NDArray[np.intp]) -> "Buffers":
        """Return some buffers in the given order, with the constraints among them.

        Contiguous groups must be taken completely or not at all.
        """
        place = np.full(len(self), -1, np.int64)
        place[ids] = np.arange(len(ids))
        return Buffers(
            self.first[ids],
            self.last[ids],
            self.sizes[ids],
            alignment=self.alignment[ids],
            fixed=None if self.fixed is None else self.fixed[ids],
            hints=None if self.hints is None else self.hints[ids],
            gaps=_renumbered(self.gaps, 1, place),
            aliases=_kept(self.aliases, place),
            contiguous=_kept(self.contiguous, place),
            may_overlap=_renumbered(self.may_overlap, 2, place),
            apart=_renumbered(self.apart, 2, place),
            names=map(self.name, ids.tolist()),
        )

    def _check(self) -> None:
        if self.names is not None and len(self.names) != len(self):
            raise MalformedInputError(f"names has {len(self.names)} entries for {len(self)} buffers; give one for each")
        self._refuse(self.last < self.first, "its live range ends before it starts; give first <= last")
        self._refuse(self.sizes < 0, "its size is negative; give bytes >= 0")
        self._refuse(self.alignment < 1, "its alignment is below 1; give a positive number of bytes")
        total = int(self.sizes.astype(np.float64).sum() + self.alignment.astype(np.float64).sum())
        if total >= _MOST_BYTES:
            raise MalformedInputError(f"the buffers add up to about {total} bytes; at most {_MOST_BYTES} can be placed")
        for name, offsets in (("fixed", self.fixed), ("hints", self.hints)):
            if offsets is not None:
                self._refuse(offsets < FREE, f"its {name} offset is negative; give bytes >= 0, or {FREE} for none")
                self._refuse(offsets >= _MOST_BYTES, f"its {name} offset is too large; give less than {_MOST_BYTES}")
        if self.fixed is not None:
            misaligned = (self.fixed != FREE) & (self.fixed % self.alignment != 0)
            self._refuse(misaligned, "its fixed offset is no multiple of its alignment; change one of the two")
        for name in ("gaps", "may_overlap", "apart"):
            rows: Ints | None = getattr(self, name)
            if rows is not None:
                self._check_ids(name, rows[:, :1] if name == "gaps" else rows)
        for name, groups in (("aliases", self.aliases), ("contiguous", self.contiguous)):
            members = [member for group in groups for member in group]
            self._check_ids(name, np.asarray(members, np.int64))
            if len(set(members)) < len(members):
                twice = next(member for member in members if members.count(member) > 1)
                raise MalformedInputError(f"buffer {self.name(twice)} is in {name} twice; join those groups into one")
        if self.gaps is not None:
            wrong = np.flatnonzero(self.gaps[:, 2] < self.gaps[:, 1])
            if len(wrong):
                buffer = self.name(int(self.gaps[wrong[0], 0]))
                raise MalformedInputError(f"a gap of buffer {buffer} ends before it starts; give first <= last")

    def _refuse(self, wrong: NDArray[np.bool_], why: str) -> None:
        where = np.flatnonzero(wrong)
        if len(where):
            raise MalformedInputError(f"buffer {self.name(int(where[0]))}: {why}")

    def _check_ids(self, what: str, ids: Ints) -> None:
        wrong = ids[(ids < 0) | (ids >= len(self))]
        if wrong.size:
            raise MalformedInputError(
                f"{what} names buffer {int(wrong.flat[0])}, of {len(self)} buffers; ids start at 0"
            )


def _integers(name: str, values: ArrayLike) -> Ints:
    try:
        array = np.asarray(values)
        if array.dtype.kind not in "iu" and array.size:
            raise TypeError
        if array.dtype.kind == "u" and array.size and array.max() > np.iinfo(np.int64).max:
            raise OverflowError
        array = np.ascontiguousarray(array, np.int64)
    except (TypeError, ValueError, OverflowError):
        raise MalformedInputError(f"{name} is no array of 64-bit integers; give whole numbers") from None
    if array.ndim != 1:
        raise MalformedInputError(f"{name} has {array.ndim} dimensions; give one entry for each buffer")
    return array


def _column(name: str, values: ArrayLike, n: int) -> Ints:
    array = _integers(name, values)
    if len(array) != n:
        raise MalformedInputError(f"{name} has {len(array)} entries for {n} buffers; give one for each")
    return array


def _offsets(name: str, values: ArrayLike | None, n: int) -> Ints | None:
    if values is None:
        return None
    array = _column(name, values, n)
    return array if (array != FREE).any() else None


def _rows(name: str, values: ArrayLike | None, width: int) -> Ints | None:
    if values is None:
        return None
    array = np.asarray(values)
    if array.size == 0:
        return None
    if array.ndim != 2 or array.shape[1] != width:
        raise MalformedInputError(f"{name} has shape {array.shape}; give rows of {width} whole numbers")
    return _integers(name, array.reshape(-1)).reshape(-1, width)


def _groups(groups: Iterable[Iterable[int]]) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(int(member) for member in group) for group in groups)


def _renumbered(rows: Ints | None, n_ids: int, place: Ints) -> Ints | None:
    if rows is None:
        return None
    rows = np.concatenate([place[rows[:, :n_ids]], rows[:, n_ids:]], axis=1)
    return rows[(rows[:, :n_ids] >= 0).all(axis=1)]


def _kept(groups: tuple[tuple[int, ...], ...], place: Ints) -> Iterable[list[int]]:
    renumbered = ([int(place[member]) for member in group if place[member] >= 0] for group in groups)
    return (group for group in renumbered if group)


def live_pieces(buffers: Buffers) -> Ints:
    """Return half-open, non-empty rows (buffer, first, last) of live ranges without gaps, sorted. O(n log n)."""
    everyone = np.arange(len(buffers))
    if buffers.gaps is None:
        rows = np.stack([everyone, buffers.first, buffers.last], axis=1)
        return rows[buffers.first < buffers.last]
    owners, first, last = buffers.gaps.T
    first, last = np.maximum(first, buffers.first[owners]), np.minimum(last, buffers.last[owners])
    inside = first < last
    # An empty gap at the end of every live range ends its last piece.
    owners = np.concatenate([owners[inside], everyone])
    first = np.concatenate([first[inside], buffers.last])
    last = np.concatenate([last[inside], buffers.last])
    order = np.lexsort((first, owners))
    owners, first, last = owners[order], first[order], last[order]
    steps, ranks = np.unique(last, return_inverse=True)
    latest = np.maximum.accumulate(owners * len(steps) + ranks) - owners * len(steps)
    begins = np.where(np.diff(owners, prepend=-1) > 0, buffers.first[owners], steps[np.roll(latest, 1)])
    alive = begins < first
    return np.stack([owners, begins, first], axis=1)[alive]
