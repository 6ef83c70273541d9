"""Checks of addresses: complete, without overlaps."""

from collections.abc import Callable
from typing import NoReturn

import numpy as np
from numpy.typing import NDArray

from lowtide.core.errors import VerificationError
from lowtide.engine.graph import Graph, Lifetime
from lowtide.engine.plan.addresses import BEFORE_THE_FIRST_STEP, Address, Addresses
from lowtide.engine.plan.plan import Plan

_LAST_ADDRESS = 2**62
_Table = NDArray[np.int64]
_KEY = (0, 3, 1)
"""Columns: buffer, memory space, first step."""


class SortedRanks:
    """A set of integers below n, in words of about sqrt(n) bits. Every operation takes O(sqrt n) bits."""

    def __init__(self, limit: int) -> None:
        self._width = 1 << ((max(limit, 1).bit_length() + 1) // 2)
        self._words = [0] * (limit // self._width + 1)
        self._used = 0

    def add(self, rank: int) -> None:
        word, bit = divmod(rank, self._width)
        self._words[word] |= 1 << bit
        self._used |= 1 << word

    def remove(self, rank: int) -> None:
        word, bit = divmod(rank, self._width)
        self._words[word] ^= 1 << bit
        if not self._words[word]:
            self._used ^= 1 << word

    def below(self, rank: int) -> int | None:
        word, bit = divmod(rank, self._width)
        lower = self._words[word] & ((1 << bit) - 1)
        if not lower:
            words = self._used & ((1 << word) - 1)
            if not words:
                return None
            word = words.bit_length() - 1
            lower = self._words[word]
        return word * self._width + lower.bit_length() - 1

    def above(self, rank: int) -> int | None:
        word, bit = divmod(rank, self._width)
        higher = self._words[word] >> (bit + 1) << (bit + 1)
        if not higher:
            words = self._used >> (word + 1) << (word + 1)
            if not words:
                return None
            word = (words & -words).bit_length() - 1
            higher = self._words[word]
        return word * self._width + (higher & -higher).bit_length() - 1


def verify_addresses(graph: Graph, plan: Plan, residencies: NDArray[np.int64]) -> None:
    """Check that the addresses of an executable plan are complete, aligned and without overlaps. O(k log k).

    Raises VerificationError.
    """
    given = Addresses.of(plan.addresses).table
    _check_ids(graph, given)
    given = given[_by_key(given)]
    twice = np.logical_and.reduce([given[1:, column] == given[:-1, column] for column in _KEY])
    _reject(graph, given[1:], twice, lambda _: "occurs twice; give one address per residency")
    _check_residencies(graph, given, residencies)
    _check_offsets(graph, plan, given)
    for space in range(len(graph.spaces)):
        _check_overlaps(graph, given, np.flatnonzero(given[:, 3] == space))


def _by_key(table: _Table) -> NDArray[np.int64]:
    return np.lexsort([table[:, column] for column in reversed(_KEY)])


def _check_ids(graph: Graph, given: _Table) -> None:
    known = (given[:, 0] >= 0) & (given[:, 0] < graph.n_buffers) & (given[:, 3] >= 0)
    unknown = np.flatnonzero(~(known & (given[:, 3] < len(graph.spaces))))
    if len(unknown):
        address = Address(*given[unknown[0]].tolist())
        raise VerificationError(f"address {address}: the graph has no such buffer or memory space")


def _check_residencies(graph: Graph, given: _Table, residencies: _Table) -> None:
    by_key = _by_key(residencies)
    wanted = residencies[by_key]
    if len(given) != len(wanted) or any((given[:, column] != wanted[:, column]).any() for column in _KEY):
        _explain_difference(graph, given, wanted)
    _reject(
        graph,
        given,
        given[:, 2] != wanted[:, 2],
        lambda row: f"should cover steps [{wanted[row, 1]}, {wanted[row, 2]}); correct its last step",
    )
    rows = np.empty(len(wanted), np.int64)
    rows[by_key] = np.arange(len(wanted))
    before = rows[wanted[:, 4]] if len(wanted) else rows
    _reject(
        graph,
        given,
        (wanted[:, 4] >= 0) & (given[before, 4] != given[:, 4]),
        lambda row: (
            f"takes over the storage of buffer {graph.buffer_names[given[before[row], 0]]!r} at "
            f"{given[before[row], 4]}; both must have the same offset"
        ),
    )


def _explain_difference(graph: Graph, given: _Table, wanted: _Table) -> NoReturn:
    addresses: list[list[int]] = given.tolist()
    residencies: list[list[int]] = wanted.tolist()
    addressed = {(row[0], row[1], row[3]) for row in addresses}
    for buffer, first, last, space, _ in residencies:
        if (buffer, first, space) not in addressed:
            raise VerificationError(
                f"buffer {graph.buffer_names[buffer]!r} has no address in memory space {graph.spaces[space].name!r} "
                f"for steps [{first}, {last}); add one"
            )
    resident = {(row[0], row[1], row[3]) for row in residencies}
    extra = next(row for row in addresses if (row[0], row[1], row[3]) not in resident)
    raise VerificationError(f"{_describe(graph, extra)} matches no residency of the plan; remove it")


def _check_offsets(graph: Graph, plan: Plan, given: _Table) -> None:
    alignments = np.array([space.alignment for space in graph.spaces], np.int64)[given[:, 3]]
    _reject(
        graph,
        given,
        (given[:, 4] < 0) | (given[:, 4] % alignments != 0),
        lambda row: (
            f"has an offset that is negative or not a multiple of {alignments[row]}, the alignment of memory space "
            f"{_space(graph, given, row)}; move it"
        ),
    )
    sizes = graph.sizes[given[:, 0]]
    _reject(graph, given, given[:, 4] > _LAST_ADDRESS - sizes, lambda row: "ends above 2^62; move it")
    known = [min(plan.arena_bytes.get(space.name, _LAST_ADDRESS), _LAST_ADDRESS) for space in graph.spaces]
    arenas = np.array(known, np.int64)[given[:, 3]]
    _reject(
        graph,
        given,
        given[:, 4] + sizes > arenas,
        lambda row: (
            f"ends at {given[row, 4] + sizes[row]}, beyond the arena of {arenas[row]} bytes in memory space "
            f"{_space(graph, given, row)}; move it or enlarge the arena"
        ),
    )


def _check_overlaps(graph: Graph, given: _Table, rows: NDArray[np.int64]) -> None:
    """Sweep over steps: among live residencies, only neighbors by offset can overlap."""
    buffers, firsts, lasts, spaces, offsets = given[rows].T
    # All inputs exist before the first step, including those that step 0 frees.
    at_start = (firsts == 0) & (spaces == graph.buffer_spaces[buffers]) & (graph.lifetimes[buffers] <= Lifetime.DONATED)
    firsts = np.where(at_start, BEFORE_THE_FIRST_STEP, firsts)
    by_offset = np.argsort(offsets, kind="stable")
    ranks = np.argsort(by_offset)
    order = np.lexsort((offsets, firsts))
    ending = np.argsort(lasts, kind="stable")
    # Memoryviews need a fourth of the memory of lists.
    starts, ends = offsets[by_offset].data, (offsets + graph.sizes[buffers])[by_offset].data
    leaving, left_at, gone = ranks[ending].data, lasts[ending].data, 0
    live = SortedRanks(len(rows))
    for rank, first in zip(ranks[order].data, firsts[order].data, strict=True):
        while left_at[gone] <= first:
            live.remove(leaving[gone])
            gone += 1
        lower, upper = live.below(rank), live.above(rank)
        for other in (lower, upper):
            if other is not None and starts[rank] < ends[other] and starts[other] < ends[rank]:
                one, two = (_describe(graph, given[rows[by_offset[each]]].tolist()) for each in (rank, other))
                raise VerificationError(f"{one} overlaps {two} at step {max(first, 0)}; move one of them")
        live.add(rank)


def _reject(graph: Graph, given: _Table, wrong: NDArray[np.bool_], describe: Callable[[int], str]) -> None:
    if wrong.any():
        row = int(wrong.argmax())
        raise VerificationError(f"{_describe(graph, given[row].tolist())} {describe(row)}")


def _space(graph: Graph, given: _Table, row: int) -> str:
    return repr(graph.spaces[int(given[row, 3])].name)


def _describe(graph: Graph, row: list[int]) -> str:
    address = Address(*row)
    name, space = graph.buffer_names[address.buffer], graph.spaces[address.space].name
    return (
        f"address of buffer {name!r} at {address.offset} in memory space {space!r} "
        f"for steps [{address.first_step}, {address.last_step})"
    )
