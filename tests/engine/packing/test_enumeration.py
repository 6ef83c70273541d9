"""The packing oracle agrees with trying all offsets, and on cases that other packers miss."""

from itertools import product

import numpy as np
import pytest

from lowtide.core.errors import VerificationError
from lowtide.engine.packing import FREE, Buffers
from lowtide.engine.packing.buffers import live_pieces
from lowtide.engine.packing.validate import validate
from tests.oracles.brute_packing import least_arena
from tests.oracles.random_buffers import plain_buffers, tied_buffers

MOST_OFFSETS = 3_000


def least_of_all_offsets(buffers: Buffers) -> int | None:
    """Return the least arena over all offsets, or None if there are too many."""
    least = least_arena(buffers)
    assert least is not None
    sizes, fixed = buffers.sizes.tolist(), [FREE] * len(buffers) if buffers.fixed is None else buffers.fixed.tolist()
    choices = [
        [given] if given != FREE else range(0, max(0, least - size) + 1, alignment)
        for given, size, alignment in zip(fixed, sizes, buffers.alignment.tolist(), strict=True)
    ]
    if np.prod([float(len(choice)) for choice in choices]) > MOST_OFFSETS:
        return None
    alive = {owner for owner, _, _ in live_pieces(buffers).tolist()}
    arenas = (
        max((at + sizes[k] for k, at in enumerate(offsets) if k in alive), default=0)
        for offsets in product(*choices)
        if valid(buffers, np.array(offsets))
    )
    return min(arenas, default=-1)


def valid(buffers: Buffers, offsets: np.ndarray) -> bool:
    """Return whether offsets are a packing."""
    try:
        validate(buffers, offsets)
    except VerificationError:
        return False
    return True


@pytest.mark.parametrize("make", [plain_buffers, tied_buffers])
def test_the_oracle_finds_the_least_arena_over_all_offsets(make: object) -> None:
    tried = 0
    for seed in range(60):
        buffers = make(seed, 4)  # type: ignore[operator]
        everything = least_of_all_offsets(buffers)
        if everything is not None:
            tried += 1
            assert least_arena(buffers) == everything, seed
    assert tried >= 30


def test_a_leading_gap_is_filled() -> None:
    """With inclusive steps, 100 in [0, 1], 80 in [1, 2], 60 in [2, 3] need 180 instead of 240."""
    assert least_arena(Buffers([0, 1, 2], [2, 3, 4], [100, 80, 60])) == 180


def test_a_hole_below_a_conflict_is_filled() -> None:
    """The last buffer fits below a conflicting one, after the buffer below that one is freed."""
    assert least_arena(Buffers([0, 0, 3], [3, 9, 9], [10, 10, 10])) == 20


def test_only_aligned_holes_count() -> None:
    """Of the 10 bytes between 4 and 14, only 6 begin at a multiple of 8."""
    around = {"first": [0, 0, 0], "last": [9, 9, 9], "fixed": [0, 14, FREE], "alignment": [1, 1, 8]}
    assert least_arena(Buffers(**around, sizes=[4, 4, 6])) == 18
    assert least_arena(Buffers(**around, sizes=[4, 4, 7])) == 31


def test_half_open_and_inclusive_ends_differ() -> None:
    assert least_arena(Buffers([0, 2], [2, 4], [5, 5])) == 5
    assert least_arena(Buffers([0, 2], [3, 4], [5, 5])) == 10


def test_the_least_arena_can_be_above_what_is_live() -> None:
    """At most 12 bytes are live, but the 2 bytes below the fixed buffer fit no other one."""
    assert least_arena(Buffers([0, 0, 3, 3], [2, 9, 5, 9], [4, 4, 4, 4], fixed=[FREE, 2, FREE, FREE])) == 14


def test_gaps_let_others_in() -> None:
    assert least_arena(Buffers([0, 3], [9, 5], [7, 7], gaps=[[0, 3, 5]])) == 7


def test_groups_and_pairs_are_respected() -> None:
    both = {"first": [0, 0], "last": [9, 9], "sizes": [6, 5]}
    apart_in_time = {"first": [0, 5], "last": [5, 9], "sizes": [6, 5]}
    assert least_arena(Buffers(**both, aliases=[[0, 1]])) == 6
    assert least_arena(Buffers(**both, may_overlap=[[1, 0]])) == 6
    assert least_arena(Buffers(**apart_in_time)) == 6
    assert least_arena(Buffers(**apart_in_time, apart=[[1, 0]])) == 11
    assert least_arena(Buffers(**apart_in_time, contiguous=[[1, 0]], alignment=[4, 1])) == 9 + 5


def test_a_contradiction_has_no_arena() -> None:
    assert least_arena(Buffers([0, 0], [9, 9], [6, 5], fixed=[0, 3])) is None
    assert least_arena(Buffers([0, 0], [9, 9], [6, 5], fixed=[0, 8], contiguous=[[0, 1]])) is None
    assert least_arena(Buffers([0, 0], [9, 9], [6, 5], aliases=[[0, 1]], apart=[[0, 1]])) is None


def test_no_buffers_need_no_arena() -> None:
    assert least_arena(Buffers([], [], [])) == 0
    assert least_arena(Buffers([3], [3], [9])) == 0
