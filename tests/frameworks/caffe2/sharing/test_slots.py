"""Slots: memonger's known answers, the optimum, and bounds that hold."""

from collections.abc import Iterator, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lowtide.core.errors import UsageError
from lowtide.share import BlobRange, SlotAssignment, greedy_slots, optimal_slots, verify_assignments

FOUR = [BlobRange("b1", 1, 3, 10), BlobRange("b2", 3, 4, 1), BlobRange("b3", 5, 6, 1), BlobRange("b4", 5, 7, 10)]
MOMENT = st.one_of(st.none(), st.integers(0, 8))
SIZE = st.one_of(st.none(), st.sampled_from((0, 1, 2, 3, 10)))


@st.composite
def ranges(draw: st.DrawFn, most: int = 30) -> list[BlobRange]:
    """Draw ranges with unknown starts, ends and sizes."""
    result: list[BlobRange] = []
    for number in range(draw(st.integers(0, most))):
        defined = draw(MOMENT)
        used = draw(st.one_of(st.none(), st.integers(defined or 0, 10)))
        result.append(BlobRange(f"b{number}", defined, used, draw(SIZE)))
    return result


def _names(assignment: SlotAssignment) -> list[list[str]]:
    return [[blob.name for blob in slot] for slot in assignment.slots]


def _partitions(blobs: Sequence[BlobRange]) -> Iterator[list[list[BlobRange]]]:
    """Yield all ways to split blobs into groups that are never live together."""
    if not blobs:
        yield []
        return
    for groups in _partitions(blobs[1:]):
        yield [[blobs[0]], *groups]
        for place, group in enumerate(groups):
            if all(_apart(blobs[0], other) for other in group):
                yield [*groups[:place], [blobs[0], *group], *groups[place + 1 :]]


def _apart(one: BlobRange, other: BlobRange) -> bool:
    spans = [(-1 if b.defined is None else b.defined, 99 if b.used is None else b.used) for b in (one, other)]
    return spans[0][1] < spans[1][0] or spans[1][1] < spans[0][0]


def _bytes(group: Sequence[BlobRange]) -> int:
    return max(1 if blob.size is None else blob.size for blob in group)


def test_memongers_four_blobs_need_two_slots_of_eleven_bytes() -> None:
    for assignment in (greedy_slots(FOUR), optimal_slots(FOUR)):
        assert _names(assignment) == [["b1", "b4"], ["b2", "b3"]]
        assert assignment.total_bytes == 11
        assert assignment.optimal


def test_memongers_three_blobs_need_eleven_bytes_at_best() -> None:
    three = [BlobRange("b1", 1, 2, 10), BlobRange("b2", 4, 6, 1), BlobRange("b3", 5, 6, 10)]
    assert optimal_slots(three).total_bytes == 11
    assert greedy_slots(three).total_bytes == 20


def test_a_blob_that_ends_where_another_begins_does_not_make_room_for_it() -> None:
    assert len(optimal_slots([BlobRange("a", 0, 2), BlobRange("b", 2, 3)]).slots) == 2
    assert len(optimal_slots([BlobRange("a", 0, 2), BlobRange("b", 3, 3)]).slots) == 1


def test_blobs_never_used_come_last_and_blobs_never_defined_first() -> None:
    blobs = [BlobRange("unused", 4, None), BlobRange("given", None, 3), BlobRange("late", 5, 6)]
    assert _names(greedy_slots(blobs)) == [["given", "late"], ["unused"]]
    assert _names(greedy_slots(blobs[:2])) == [["given", "unused"]]


def test_no_blobs_need_no_slots() -> None:
    assert optimal_slots([]).total_bytes == greedy_slots([]).total_bytes == 0


@given(ranges(most=8))
def test_optimal_slots_are_as_small_as_the_best_of_all_partitions(blobs: list[BlobRange]) -> None:
    assignment = optimal_slots(blobs)
    best = min(sum(map(_bytes, groups)) for groups in _partitions(blobs))
    assert assignment.optimal
    assert assignment.total_bytes == best == assignment.lower_bound_bytes


@given(ranges(), st.sampled_from((0, 3, 30, 1000)))
def test_optimal_slots_are_never_larger_than_greedy_ones_for_any_work_limit(
    blobs: list[BlobRange], work_limit: int
) -> None:
    greedy, best = greedy_slots(blobs), optimal_slots(blobs, work_limit=work_limit)
    live = max(
        (sum(_bytes([b]) for b in blobs if not _apart(b, BlobRange("", at, at))) for at in range(-1, 11)), default=0
    )
    assert live <= best.lower_bound_bytes <= best.total_bytes <= greedy.total_bytes <= sum(_bytes([b]) for b in blobs)
    assert best.work <= work_limit + len(blobs) + 1
    assert best.optimal or work_limit < 1000


@given(ranges())
def test_every_assignment_holds_each_blob_once_and_nothing_live_twice(blobs: list[BlobRange]) -> None:
    for assignment in (greedy_slots(blobs), optimal_slots(blobs, work_limit=500)):
        verify_assignments(assignment.slots)
        assert sorted(name for slot in _names(assignment) for name in slot) == sorted(blob.name for blob in blobs)


def test_a_negative_work_limit_is_a_usage_error() -> None:
    with pytest.raises(UsageError, match="work limit -1 is negative"):
        optimal_slots(FOUR, work_limit=-1)
