"""Compare two packing rules with their Python twins and with enumeration of tiny instances."""

from itertools import combinations, pairwise, product
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lowtide.engine.packing import Buffers
from lowtide.engine.packing.items import items_of
from lowtide.engine.packing.rules import RULES, Rule, best_fit_by_birth, best_fit_by_size
from tests.examples import examples

Block = tuple[int, int, int]
"""First step, last step (half-open), size in bytes."""
PACKERS = list(RULES.values())

blocks = st.lists(
    st.tuples(st.integers(-1, 12), st.integers(1, 6), st.integers(1, 20)).map(lambda b: (b[0], b[0] + b[1], b[2])),
    max_size=12,
)
alignments = st.sampled_from([1, 4, 64])


def offsets_of(packer: Rule, instance: list[Block], alignment: int) -> list[int]:
    """Return the offsets of a packer."""
    first, last, sizes = (np.array([block[k] for block in instance], np.int64) for k in range(3))
    return packer(items_of(Buffers(first, last, sizes, alignment=alignment)).items).tolist()


def arena(instance: list[Block], offsets: list[int]) -> int:
    """Return the bytes that offsets span."""
    return max((offset + size for (_, _, size), offset in zip(instance, offsets, strict=True)), default=0)


def overlap_in_time(one: Block, two: Block) -> bool:
    """Return whether two blocks are alive at one step."""
    return bool({*range(one[0], one[1])} & {*range(two[0], two[1])})


def feasible(instance: list[Block], offsets: list[int]) -> bool:
    """Return whether no two blocks share a byte at one step."""
    placed = list(zip(instance, offsets, strict=True))
    return not any(
        overlap_in_time(one, two) and {*range(at, at + one[2])} & {*range(other, other + two[2])}
        for (one, at), (two, other) in combinations(placed, 2)
    )


def most_live(instance: list[Block]) -> int:
    """Return the most bytes live at one step."""
    return max(
        (sum(size for first, last, size in instance if first <= step < last) for step in range(-1, 20)), default=0
    )


@examples(300)
@pytest.mark.parametrize("packer", PACKERS, ids=list(RULES))
@given(instance=blocks, alignment=alignments)
def test_blocks_are_aligned_never_overlap_and_need_no_less_than_what_is_live(
    packer: Rule, instance: list[Block], alignment: int
) -> None:
    offsets = offsets_of(packer, instance, alignment)
    assert all(offset >= 0 and offset % alignment == 0 for offset in offsets)
    assert feasible(instance, offsets)
    assert arena(instance, offsets) >= most_live(instance)


@pytest.mark.parametrize("packer", PACKERS, ids=list(RULES))
@examples(60)
@given(instance=blocks.filter(lambda drawn: len(drawn) <= 4), seed=st.integers(0, 10**6))
def test_no_packer_beats_the_best_of_all_placements(packer: Rule, instance: list[Block], seed: int) -> None:
    """In some optimal placement every block rests on the floor or on other blocks, at a sum of sizes."""
    small = [(first, last, min(size, 5)) for first, last, size in instance]
    chosen = [sum(part) for count in range(len(small)) for part in combinations([b[2] for b in small], count)]
    places = sorted({0, *chosen})
    placements = (list(offsets) for offsets in product(places, repeat=len(small)))
    best = min(arena(small, offsets) for offsets in placements if feasible(small, offsets))
    found = arena(small, offsets_of(packer, small, 1))
    assert best <= found <= sum(size for _, _, size in small)


@examples(300)
@given(instance=blocks, alignment=alignments)
def test_greedy_by_size_places_the_largest_first_in_the_tightest_gap(instance: list[Block], alignment: int) -> None:
    assert offsets_of(best_fit_by_size, instance, alignment) == plain_by_size(instance, alignment)


@examples(300)
@given(instance=blocks, alignment=alignments)
def test_best_fit_takes_the_smallest_free_block_in_the_order_of_birth(instance: list[Block], alignment: int) -> None:
    assert offsets_of(best_fit_by_birth, instance, alignment) == plain_by_birth(instance, alignment)


def test_thousands_of_blocks_are_packed_without_an_overlap() -> None:
    random = Random(0)
    instance: list[Block] = []
    for _ in range(4000):
        first = random.randrange(4000)
        instance.append((first, first + random.randint(1, 60), random.randint(1, 1000)))
    for packer in PACKERS:
        offsets = offsets_of(packer, instance, 8)
        by_step: dict[int, list[tuple[int, int]]] = {}
        for (first, last, size), offset in zip(instance, offsets, strict=True):
            for step in range(first, last):
                by_step.setdefault(step, []).append((offset, offset + size))
        for spans in by_step.values():
            spans.sort()
            assert all(one[1] <= two[0] for one, two in pairwise(spans))


def plain_by_size(instance: list[Block], alignment: int) -> list[int]:
    """Place by falling size, then by sections alive: in the tightest gap, else above all."""
    times = sorted({time for first, last, _ in instance for time in (first, last)})
    instance = [(times.index(first), times.index(last), size) for first, last, size in instance]
    offsets: dict[int, int] = {}
    for k in sorted(range(len(instance)), key=lambda k: (-instance[k][2], instance[k][0] - instance[k][1], k)):
        size = instance[k][2]
        below = sorted((offsets[o], instance[o][2]) for o in offsets if overlap_in_time(instance[o], instance[k]))
        floors = [0] + [-(-max(at + s for at, s in below[: n + 1]) // alignment) * alignment for n in range(len(below))]
        gaps = [(ceiling - floor, floor) for (ceiling, _), floor in zip(below, floors, strict=False)]
        fitting = [gap for gap in gaps if gap[0] >= size]
        offsets[k] = min(fitting)[1] if fitting else floors[-1]
    return [offsets[k] for k in range(len(instance))]


def plain_by_birth(instance: list[Block], alignment: int) -> list[int]:
    """Place by birth, larger first, in the shortest fitting run of a byte map."""
    padded = [-(-size // alignment) * alignment for _, _, size in instance]
    offsets: dict[int, int] = {}
    end = 0
    for k in sorted(range(len(instance)), key=lambda k: (instance[k][0], -instance[k][2], k)):
        taken = {
            byte
            for other in offsets
            if instance[other][1] > instance[k][0]
            for byte in range(offsets[other], offsets[other] + padded[other])
        }
        holes: list[tuple[int, int]] = []  # length, offset; the last one, which reaches the end, may grow
        start = 0
        for byte in range(end + 1):
            if byte in taken or byte == end:
                if byte > start:
                    holes.append((byte - start, start))
                start = byte + 1
        fitting = [hole for hole in holes if hole[0] >= padded[k]]
        at_end = holes[-1][1] if holes and sum(holes[-1]) == end else end
        offsets[k] = min(fitting)[1] if fitting else at_end
        end = max(end, offsets[k] + padded[k])
    return [offsets[k] for k in range(len(instance))]
