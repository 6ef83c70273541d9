"""The validator of packings, independent of the packers."""

import math
from collections.abc import Iterator
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from lowtide.core.errors import VerificationError
from lowtide.engine.packing.buffers import FREE, Buffers, Ints, live_pieces


def validate(buffers: Buffers, offsets: Ints, capacity: int | None = None) -> None:
    """Check that offsets are a valid packing of at most `capacity` bytes.

    Raises VerificationError for the first violation, naming the buffers and the step. Of empty and never alive buffers,
    only fixed offsets are checked. Complexity: O(n log^2 n) for n buffers, gaps, group members and pairs; log n times
    as much for an invalid packing.
    """
    if offsets.shape != buffers.sizes.shape or offsets.dtype != np.int64:
        raise VerificationError(f"offsets have shape {offsets.shape}, {offsets.dtype}; give an int64 for every buffer")
    broken = broken_rule(buffers, offsets, capacity)
    if broken is not None:
        raise VerificationError(f"{broken}; pack again")


def broken_rule(buffers: Buffers, offsets: Ints, capacity: int | None = None) -> str | None:
    """Return the complaint of `validate`, None for a valid packing."""
    return next(_broken_rules(buffers, offsets, capacity), None)


def _broken_rules(buffers: Buffers, offsets: Ints, capacity: int | None) -> Iterator[str]:
    pieces = live_pieces(buffers)
    pieces = pieces[buffers.sizes[pieces[:, 0]] > 0]
    placed = np.zeros(len(buffers), np.bool_)
    placed[pieces[:, 0]] = True
    yield from _each(buffers, offsets, placed, capacity)
    for group in buffers.aliases:
        yield from _aliases(buffers, offsets, [member for member in group if placed[member]])
    alignment = _joint_alignment(buffers, placed) if buffers.contiguous else buffers.alignment
    for group in buffers.contiguous:
        yield from _contiguous(buffers, offsets, [member for member in group if placed[member]], alignment)
    yield from _apart(buffers, offsets, placed)
    yield from _overlaps(buffers, offsets, pieces)


def _each(buffers: Buffers, offsets: Ints, placed: NDArray[np.bool_], capacity: int | None) -> Iterator[str]:
    if buffers.fixed is not None:
        moved = (buffers.fixed != FREE) & (offsets != buffers.fixed)
        yield from _wrong(buffers, offsets, moved, "is not where it is fixed")
    yield from _wrong(buffers, offsets, offsets < 0, "is below 0")
    yield from _wrong(buffers, offsets, placed & (offsets % buffers.alignment != 0), "is not aligned")
    yield from _wrong(buffers, offsets, offsets > np.iinfo(np.int64).max - buffers.sizes, "ends beyond 64 bits")
    if capacity is not None:
        yield from _wrong(buffers, offsets, placed & (offsets > capacity - buffers.sizes), f"ends above {capacity}")


def _wrong(buffers: Buffers, offsets: Ints, wrong: NDArray[np.bool_], why: str) -> Iterator[str]:
    for buffer in np.flatnonzero(wrong)[:1].tolist():
        yield f"buffer {buffers.name(buffer)} at offset {offsets[buffer]} {why}"


def _aliases(buffers: Buffers, offsets: Ints, members: list[int]) -> Iterator[str]:
    for one, two in pairwise(members):
        if offsets[one] != offsets[two]:
            yield _clash(buffers, offsets, one, two, "must have one offset")


def _contiguous(buffers: Buffers, offsets: Ints, members: list[int], alignment: Ints) -> Iterator[str]:
    for first in members[:1]:
        if offsets[first] % math.lcm(*alignment[members].tolist()):
            yield f"buffer {buffers.name(first)} at offset {offsets[first]} starts a misaligned group"
    for one, two in pairwise(members):
        end, step = int(offsets[one] + buffers.sizes[one]), int(alignment[two])
        if offsets[two] != -(-end // step) * step:
            yield _clash(buffers, offsets, one, two, "must be adjacent")


def _joint_alignment(buffers: Buffers, placed: NDArray[np.bool_]) -> Ints:
    alignment = buffers.alignment.copy()
    for group in buffers.aliases:
        alive = [member for member in group if placed[member]]
        alignment[alive] = math.lcm(*buffers.alignment[alive].tolist())
    return alignment


def _apart(buffers: Buffers, offsets: Ints, placed: NDArray[np.bool_]) -> Iterator[str]:
    if buffers.apart is None:
        return
    one, two = buffers.apart.T
    ends = offsets + buffers.sizes
    shared = placed[one] & placed[two] & (one != two) & (offsets[one] < ends[two]) & (offsets[two] < ends[one])
    for row in np.flatnonzero(shared)[:1].tolist():
        yield _clash(buffers, offsets, int(one[row]), int(two[row]), "must never share bytes")


def _overlaps(buffers: Buffers, offsets: Ints, pieces: Ints) -> Iterator[str]:
    exempt = _exempt(buffers)
    if _surplus(buffers, offsets, pieces, exempt, len(buffers)) == 0:
        return
    sound, broken = 0, len(buffers)  # counts of leading buffers without and with a clash
    while broken - sound > 1:
        middle = (sound + broken) // 2
        if _surplus(buffers, offsets, pieces, exempt, middle) == 0:
            sound = middle
        else:
            broken = middle
    yield _overlap(buffers, offsets, pieces, exempt, sound)


def _exempt(buffers: Buffers) -> Ints:
    group_of = np.arange(len(buffers)) + len(buffers.aliases)
    rows: list[Ints] = [np.zeros((0, 2), np.int64)]
    for group, members in enumerate(buffers.aliases):
        group_of[list(members)] = group
        rows.append(np.stack([np.full(len(members), group), np.asarray(members, np.int64)], axis=1))
    if buffers.may_overlap is not None:
        pairs = np.unique(np.sort(buffers.may_overlap, axis=1), axis=0)
        pairs = pairs[group_of[pairs[:, 0]] != group_of[pairs[:, 1]]]
        rows.append(np.stack([np.arange(2 * len(pairs)) // 2 + len(buffers.aliases), pairs.ravel()], axis=1))
    return np.concatenate(rows)


def _surplus(buffers: Buffers, offsets: Ints, pieces: Ints, exempt: Ints, count: int) -> int:
    pieces = pieces[: np.searchsorted(pieces[:, 0], count)]
    owners, first, last = pieces.T
    overlaps = count_overlaps(first, last, offsets[owners], offsets[owners] + buffers.sizes[owners])
    if overlaps == 0 or len(exempt) == 0:
        return overlaps
    groups, members = exempt[exempt[:, 1] < count].T
    pieces_of = np.bincount(owners, minlength=count)
    numbers = pieces_of[members]
    begins = (pieces_of.cumsum() - pieces_of)[members]
    own = np.repeat(begins - numbers.cumsum() + numbers, numbers) + np.arange(int(numbers.sum()))
    groups, owners = np.repeat(groups, numbers), owners[own]
    # Separate the steps of different groups.
    steps, ranks = np.unique(np.concatenate([first[own], last[own]]), return_inverse=True)
    begin, end = (groups * len(steps) + part for part in np.split(ranks, 2))
    return overlaps - count_overlaps(begin, end, offsets[owners], offsets[owners] + buffers.sizes[owners])


def _overlap(buffers: Buffers, offsets: Ints, pieces: Ints, exempt: Ints, buffer: int) -> str:
    owners, first, last = pieces.T
    groups = exempt[exempt[:, 1] == buffer, 0]
    friends = exempt[np.isin(exempt[:, 0], groups), 1]
    low, high = offsets[owners], offsets[owners] + buffers.sizes[owners]
    start, end = int(offsets[buffer]), int(offsets[buffer] + buffers.sizes[buffer])
    others = (owners < buffer) & ~np.isin(owners, friends) & (low < end) & (start < high)
    clashes = [
        (max(int(first[piece]), int(first[other])), int(owners[other]))
        for piece in np.flatnonzero(owners == buffer).tolist()
        for other in np.flatnonzero(others & (first < last[piece]) & (first[piece] < last)).tolist()
    ]
    step, other = min(clashes)
    return _clash(buffers, offsets, other, buffer, f"share bytes at step {step}")


def _clash(buffers: Buffers, offsets: Ints, one: int, two: int, why: str) -> str:
    ends = offsets + buffers.sizes
    first, second = (f"{buffers.name(each)} (offsets {offsets[each]} to {ends[each]})" for each in (one, two))
    return f"buffers {first} and {second} {why}"


def count_overlaps(first: Ints, last: Ints, low: Ints, high: Ints) -> int:
    """Return the number of overlapping pairs among non-empty rectangles [first, last) x [low, high).

    A pair that starts at the same step counts twice. Complexity: O(n log^2 n) in NumPy, by a segment tree; memory O(n).
    """
    n = len(first)
    if n == 0:
        return 0
    steps, ranks = np.unique(np.concatenate([first, last]), return_inverse=True)
    addresses, places = np.unique(np.concatenate([low, high]), return_inverse=True)
    begins, low, high = ranks[:n], places[:n], places[n:]
    width = len(addresses)
    left, right, owners = begins.copy(), ranks[n:], np.arange(n)
    met = 0
    for level in range(len(steps).bit_length()):
        covered = np.concatenate([left[left & 1 == 1], right[right & 1 == 1] - 1])
        who = np.concatenate([owners[left & 1 == 1], owners[right & 1 == 1]])
        if len(covered):
            busy = np.zeros((len(steps) >> level) + 2, np.bool_)
            busy[covered] = True
            here = begins >> level
            born = np.flatnonzero(busy[here])
            starts, ends = np.sort(covered * width + low[who]), np.sort(covered * width + high[who])
            lows, highs = np.sort(here[born] * width + low[born]), np.sort(here[born] * width + high[born])
            met += int(np.searchsorted(starts, highs).sum() - np.searchsorted(ends, lows, "right").sum())
        left, right = (left + 1) >> 1, right >> 1
        wide = left < right
        left, right, owners = left[wide], right[wide], owners[wide]
    return met - n
