"""Conflicts of a capacity: proven, small, and absent after a mere failure to find."""

from itertools import combinations
from pathlib import Path

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from lowtide.engine.packing import Buffers, pack
from lowtide.engine.packing.conflict import find_conflict
from lowtide.engine.packing.csv_file import read_buffer_file
from lowtide.engine.packing.items import items_of
from tests.examples import examples
from tests.oracles.brute_packing import least_arena
from tests.oracles.random_buffers import plain_buffers

MUCH = 10**7
HARD = Path(__file__).parents[2] / "data/buffers/minimalloc_D.csv"


@examples(60)
@given(st.integers(0, 10**6), st.integers(1, 8))
def test_no_buffer_of_a_conflict_can_be_left_out(seed: int, missing: int) -> None:
    buffers = plain_buffers(seed)
    least = least_arena(buffers)
    assert least is not None
    capacity = least - missing
    if capacity < 0:
        return
    packed = pack(buffers, capacity=capacity)
    assert packed.conflict_minimal
    assert _least(buffers, packed.conflict) > capacity
    assert all(
        _least(buffers, rest) <= capacity for rest in combinations(packed.conflict, len(packed.conflict) - 1) if rest
    )


def _least(buffers: Buffers, ids: tuple[int, ...]) -> int:
    least = least_arena(buffers.take(np.asarray(ids)))
    assert least is not None
    return least


def test_of_all_sections_the_one_with_the_fewest_buffers_counts() -> None:
    """One section has eleven small buffers, another one two large ones and a small one."""
    buffers = Buffers([0] * 11 + [5, 5, 5], [3] * 11 + [9] * 3, [10] * 11 + [2, 51, 50])
    assert pack(buffers, capacity=100).conflict == (12, 13)


def test_one_buffer_larger_than_the_capacity_is_a_conflict_by_itself() -> None:
    packed = pack(Buffers([0, 1, 2], [5, 5, 5], [3, 40, 3]), capacity=39)
    assert (packed.status, packed.conflict, packed.conflict_minimal) == ("infeasible", (1,), True)


def test_buffers_alive_at_different_times_that_do_not_fit_are_found_by_exact_search() -> None:
    """At most 12 bytes are live, but the 2 bytes below the fixed buffer fit no other one."""
    buffers = Buffers([0, 0, 3, 3, 20, 20], [2, 9, 5, 9, 30, 30], [4, 4, 4, 4, 1, 1], fixed=[-1, 2, -1, -1, -1, -1])
    packed = pack(buffers, capacity=13)
    assert (packed.status, packed.conflict, packed.conflict_minimal) == ("infeasible", (1, 2, 3), True)


def test_a_limit_of_work_leaves_a_proven_conflict_that_is_not_called_minimal() -> None:
    items = items_of(plain_buffers(3)).items
    suspects = np.arange(len(items))
    least = least_arena(plain_buffers(3))
    assert least is not None
    conflict = find_conflict(items, suspects, least - 1, 0, 100)
    assert set(conflict.items) <= set(suspects.tolist())
    assert len(find_conflict(items, suspects, least - 1, MUCH, 100).items) <= len(conflict.items)


def test_a_capacity_that_is_missed_without_proof_has_no_conflict() -> None:
    """Instance D fits this capacity; a single rule misses it and proves nothing."""
    buffers = read_buffer_file(HARD).buffers
    packed = pack(buffers, capacity=990_000, method="first-fit-by-birth")
    assert (packed.status, packed.conflict, packed.conflict_minimal) == ("stopped_by_work", (), False)
