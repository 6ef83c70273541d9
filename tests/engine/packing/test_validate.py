"""Compare the validator with all pairs of buffers at all steps, and each constraint by hand."""

from itertools import combinations
from random import Random

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from lowtide.core.errors import VerificationError
from lowtide.engine.packing import FREE, Buffers, pack
from lowtide.engine.packing.buffers import live_pieces
from lowtide.engine.packing.validate import count_overlaps, validate
from tests.examples import examples


def sound(buffers: Buffers, offsets: list[int], capacity: int | None = None) -> bool:
    """Return whether offsets are a packing."""
    try:
        validate(buffers, np.asarray(offsets, np.int64), capacity)
    except VerificationError:
        return False
    return True


def complaint(buffers: Buffers, offsets: list[int], capacity: int | None = None) -> str:
    """Return the error for invalid offsets."""
    with pytest.raises(VerificationError) as caught:
        validate(buffers, np.asarray(offsets, np.int64), capacity)
    return str(caught.value)


def alive(buffers: Buffers, buffer: int) -> set[int]:
    """Return the steps at which a buffer is alive."""
    steps = {*range(int(buffers.first[buffer]), int(buffers.last[buffer]))}
    for owner, first, last in [] if buffers.gaps is None else buffers.gaps.tolist():
        if owner == buffer:
            steps -= {*range(first, last)}
    return steps if buffers.sizes[buffer] else set()


def span(buffers: Buffers, offsets: list[int], buffer: int) -> set[int]:
    """Return the bytes of a buffer."""
    return {*range(offsets[buffer], offsets[buffer] + int(buffers.sizes[buffer]))}


def naive_overlaps(buffers: Buffers, offsets: list[int]) -> list[tuple[int, int]]:
    """Return the illegal overlaps, by examining all pairs."""
    exempt = {tuple(sorted(pair)) for pair in ([] if buffers.may_overlap is None else buffers.may_overlap.tolist())}
    exempt |= {pair for group in buffers.aliases for pair in combinations(sorted(group), 2)}
    return [
        (one, two)
        for one, two in combinations(range(len(buffers)), 2)
        if (one, two) not in exempt
        and alive(buffers, one) & alive(buffers, two)
        and span(buffers, offsets, one) & span(buffers, offsets, two)
    ]


@st.composite
def placed(draw: st.DrawFn) -> tuple[Buffers, list[int]]:
    """Draw buffers with gaps, exempt pairs and an alias group, with valid and invalid offsets."""
    n = draw(st.integers(1, 8))
    ids, steps, lengths = st.integers(0, n - 1), st.integers(-3, 9), st.integers(0, 6)
    first = draw(st.lists(steps, min_size=n, max_size=n))
    gaps = draw(st.lists(st.tuples(ids, steps, lengths), max_size=4))
    buffers = Buffers(
        first,
        [step + draw(lengths) for step in first],
        draw(st.lists(st.integers(0, 4), min_size=n, max_size=n)),
        gaps=[[buffer, step, step + length] for buffer, step, length in gaps],
        may_overlap=draw(st.lists(st.tuples(ids, ids), max_size=6)),
        aliases=[draw(st.lists(ids, unique=True, max_size=3))] if draw(st.booleans()) else [],
    )
    offsets = draw(st.lists(st.integers(0, 12), min_size=n, max_size=n))
    for group in buffers.aliases:
        for member in group:
            offsets[member] = offsets[group[0]]
    return buffers, offsets


@examples(600)
@given(placed())
def test_illegal_overlaps_are_found(drawn: tuple[Buffers, list[int]]) -> None:
    buffers, offsets = drawn
    wrong = naive_overlaps(buffers, offsets)
    assert sound(buffers, offsets) == (not wrong)
    if wrong:
        two = min(max(pair) for pair in wrong)
        said = complaint(buffers, offsets)
        assert f" and {two} (" in said
        assert any(f"buffers {one} (" in said for one, other in wrong if other == two)
        step = int(said.split("at step ")[1].split(";")[0])
        assert step in alive(buffers, two)


@examples(300)
@given(
    st.lists(
        st.tuples(st.integers(-9, 9), st.integers(1, 9), st.integers(0, 20), st.integers(1, 9)),
        max_size=12,
    )
)
@example([(0, 1, 0, 1)] * 5)
def test_pairs_of_rectangles_are_counted_once_each_and_twice_where_they_begin_together(
    rectangles: list[tuple[int, int, int, int]],
) -> None:
    first, length, low, size = (np.array([box[k] for box in rectangles], np.int64) for k in range(4))
    expected = sum(
        1 + (a[0] == b[0])
        for a, b in combinations(rectangles, 2)
        if a[0] < b[0] + b[1] and b[0] < a[0] + a[1] and a[2] < b[2] + b[3] and b[2] < a[2] + a[3]
    )
    assert count_overlaps(first, first + length, low, low + size) == expected


@examples(300)
@given(placed())
def test_live_pieces_are_the_steps_outside_of_gaps(drawn: tuple[Buffers, list[int]]) -> None:
    buffers = drawn[0]
    pieces = live_pieces(buffers).tolist()
    assert pieces == sorted(pieces)
    assert all(first < last for _, first, last in pieces)
    for buffer in range(len(buffers)):
        steps = [step for owner, first, last in pieces if owner == buffer for step in range(first, last)]
        assert len(steps) == len(set(steps))
        assert not buffers.sizes[buffer] or set(steps) == alive(buffers, buffer)


def test_one_moved_buffer_among_thousands_is_found_and_named() -> None:
    random = Random(1)
    first = [random.randrange(3000) for _ in range(3000)]
    last = [step + random.randint(1, 300) for step in first]
    sizes = [random.randint(1, 1000) for _ in first]
    gaps = [[k, first[k] + 1, last[k] - 1] for k in range(0, 3000, 7) if last[k] - first[k] > 2]
    buffers = Buffers(first, last, sizes, gaps=gaps)
    offsets = pack(buffers, effort="fast").offsets
    validate(buffers, offsets)
    for buffer in (0, 1500, 2999):
        moved = offsets.copy()
        neighbor = next(k for k in range(3000) if k % 7 and k != buffer and first[k] <= first[buffer] < last[k])
        moved[buffer] = moved[neighbor]
        with pytest.raises(VerificationError, match=rf"\b{buffer} \(|\b{neighbor} \("):
            validate(buffers, moved)


TWO = {"first": [0, 2], "last": [4, 6], "sizes": [10, 10]}


def test_half_open_ranges_that_touch_may_share_bytes() -> None:
    assert sound(Buffers([0, 4], [4, 6], [10, 10]), [0, 0])
    assert complaint(Buffers(**TWO, names=["a", "b"]), [0, 9]) == (
        "buffers a (offsets 0 to 10) and b (offsets 9 to 19) share bytes at step 2; pack again"
    )


def test_a_gap_frees_the_bytes_for_others() -> None:
    assert sound(Buffers([0, 2], [9, 4], [10, 10], gaps=[[0, 2, 4]]), [0, 0])
    assert not sound(Buffers([0, 2], [9, 5], [10, 10], gaps=[[0, 2, 4]]), [0, 0])


def test_buffers_by_themselves_are_aligned_fixed_and_within_the_capacity() -> None:
    assert "buffer 1 at offset 12 is not aligned" in complaint(Buffers(**TWO, alignment=[1, 8]), [0, 12])
    assert "buffer 0 at offset 10 is not where it is fixed" in complaint(Buffers(**TWO, fixed=[0, FREE]), [10, 0])
    assert "buffer 1 at offset -1 is below 0" in complaint(Buffers(**TWO), [0, -1])
    assert "buffer 1 at offset 10 ends above 19" in complaint(Buffers(**TWO), [0, 10], 19)
    assert "ends beyond 64 bits" in complaint(Buffers(**TWO), [0, 2**63 - 5])
    assert sound(Buffers(**TWO, alignment=[1, 2], fixed=[0, FREE]), [0, 10], 20)


def test_aliases_share_one_offset_and_their_bytes() -> None:
    assert sound(Buffers(**TWO, aliases=[[0, 1]]), [5, 5])
    assert "must have one offset" in complaint(Buffers(**TWO, aliases=[[0, 1]]), [0, 10])


def test_contiguous_buffers_follow_one_another_with_nothing_but_padding_between() -> None:
    group = {"contiguous": [[0, 1]], "alignment": [1, 8]}
    assert sound(Buffers(**TWO, **group), [0, 16])
    assert "must be adjacent" in complaint(Buffers(**TWO, **group), [0, 24])
    assert "must be adjacent" in complaint(Buffers(**TWO, **group), [16, 0])


def test_apart_holds_for_buffers_that_are_never_alive_together() -> None:
    assert not sound(Buffers([0, 4], [4, 6], [10, 10], apart=[[0, 1]]), [0, 9])
    assert "must never share bytes" in complaint(Buffers([0, 4], [4, 6], [10, 10], apart=[[1, 0]]), [0, 0])
    assert sound(Buffers([0, 4], [4, 6], [10, 10], apart=[[0, 1]]), [0, 10])


def test_pairs_that_may_overlap_excuse_no_third() -> None:
    three = {"first": [0, 0, 0], "last": [9, 9, 9], "sizes": [10, 10, 10]}
    assert sound(Buffers(**three, may_overlap=[[1, 0], [0, 1]]), [0, 5, 20])
    assert not sound(Buffers(**three, may_overlap=[[0, 1]]), [0, 0, 0])
    assert not sound(Buffers(**three, may_overlap=[[0, 1], [0, 2]]), [0, 0, 0])
    assert sound(Buffers(**three, may_overlap=[[0, 1], [0, 2], [1, 2]]), [0, 0, 0])


def test_buffers_without_bytes_or_life_are_only_bound_by_fixed_offsets() -> None:
    assert sound(Buffers([0, 0, 3], [9, 9, 3], [10, 0, 10], alignment=8), [0, 3, 5])
    assert not sound(Buffers([0, 3], [9, 3], [10, 10], fixed=[FREE, 64]), [0, 0])


def test_offsets_of_another_length_or_kind_are_refused() -> None:
    for offsets in (np.zeros(3, np.int64), np.zeros((2, 1), np.int64), np.zeros(2)):
        with pytest.raises(VerificationError, match="give an int64 for every buffer"):
            validate(Buffers(**TWO), offsets)


def test_no_buffers_are_packed() -> None:
    validate(Buffers([], [], []), np.zeros(0, np.int64), 0)
