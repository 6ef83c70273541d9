"""The search for slots: largest first, lower bounds, and many blobs."""

import random

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from lowtide.frameworks.caffe2.sharing.slot_search import (
    Intervals,
    LevelBound,
    greedy,
    largest_first,
    search,
    total_bytes,
)


def _random_intervals(seed: int, n_blobs: int) -> Intervals:
    rng = random.Random(seed)
    begins = np.array([rng.randrange(2 * n_blobs + 1) for _ in range(n_blobs)], np.int64)
    lengths = np.array([rng.choice((0, 1, 2, 5, 20)) for _ in range(n_blobs)], np.int64)
    sizes = np.array([rng.choice((0, 1, 2, 3, 10, 64, 1000)) for _ in range(n_blobs)], np.int64)
    return Intervals(begins, begins + lengths, sizes)


def _assert_feasible(intervals: Intervals, slot_of: np.ndarray) -> None:
    order = np.lexsort((intervals.begins, slot_of))
    former, latter = order[:-1], order[1:]
    together = slot_of[former] == slot_of[latter]
    assert (intervals.ends[former] < intervals.begins[latter])[together].all()


@given(st.integers(0, 10**6), st.integers(1, 60))
def test_placing_the_largest_first_is_feasible_and_heeds_its_limit(seed: int, n_blobs: int) -> None:
    intervals = _random_intervals(seed, n_blobs)
    by_size = np.argsort(-intervals.sizes, kind="stable").tolist()
    slot_of, work = largest_first(intervals, by_size, 10**6)
    assert slot_of is not None
    _assert_feasible(intervals, slot_of)
    assert largest_first(intervals, by_size, work - 1)[0] is None
    assert largest_first(intervals, by_size, work)[0] is not None


@given(st.integers(0, 10**6), st.integers(1, 60))
def test_the_search_gives_the_same_slots_every_time_and_more_work_never_worse_ones(seed: int, n_blobs: int) -> None:
    intervals = _random_intervals(seed, n_blobs)
    totals: list[int] = []
    for work_limit in (0, 10, 100, 1000, 10_000):
        found = search(intervals, work_limit)
        _assert_feasible(intervals, found.slot_of)
        assert (found.slot_of == search(intervals, work_limit).slot_of).all()
        totals.append(total_bytes(intervals, found.slot_of))
        assert found.lower_bound_bytes <= totals[-1]
    assert totals == sorted(totals, reverse=True)


@given(st.integers(0, 10**6), st.integers(1, 40))
def test_the_bound_on_new_slots_holds_in_every_placement(seed: int, n_blobs: int) -> None:
    """After each blob of the largest-first placement, the rest costs at least the bound."""
    intervals = _random_intervals(seed, n_blobs)
    by_size = np.argsort(-intervals.sizes, kind="stable").tolist()
    moments = np.unique(intervals.begins)
    last = np.searchsorted(moments, intervals.ends, side="right") - 1
    bound = LevelBound(intervals, by_size, np.searchsorted(moments, intervals.begins), last)
    slot_of = largest_first(intervals, by_size, 10**6)[0]
    assert slot_of is not None
    live = [(intervals.begins <= at) & (at <= intervals.ends) for at in moments]
    assert total_bytes(intervals, slot_of) >= bound.total >= max(int(intervals.sizes[now].sum()) for now in live)
    opened, n_open = total_bytes(intervals, slot_of), 0
    for place, blob in enumerate(by_size):
        assert 0 <= bound.still_to_open(place, n_open) <= opened
        if slot_of[blob] == n_open:
            opened, n_open = opened - int(intervals.sizes[blob]), n_open + 1
    assert bound.still_to_open(n_blobs, n_open) == opened == 0


def test_many_blobs_are_placed_at_once_and_bounded() -> None:
    intervals = _random_intervals(7, 6000)
    found = search(intervals, 10**6)
    _assert_feasible(intervals, found.slot_of)
    total = total_bytes(intervals, found.slot_of)
    assert found.lower_bound_bytes <= total < total_bytes(intervals, greedy(intervals))
    assert total <= 1.1 * found.lower_bound_bytes
    assert (search(intervals, 10).slot_of == greedy(intervals)).all()
