"""Compare native constructors with plain ones: the skyline by sections, first fit by a byte map."""

from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from lowtide import _native
from lowtide.engine.packing import Buffers
from lowtide.engine.packing.bound import lower_bound
from lowtide.engine.packing.items import Items, items_of
from lowtide.engine.packing.search import split
from tests.examples import examples
from tests.oracles.brute_packing import least_arena

Block = tuple[int, int, int]

blocks = st.lists(
    st.tuples(st.integers(0, 12), st.integers(1, 6), st.integers(1, 20)).map(lambda b: (b[0], b[0] + b[1], b[2])),
    min_size=1,
    max_size=14,
)


def items(instance: list[Block]) -> Items:
    """Return an instance for the kernels."""
    first, last, sizes = (np.array(column, np.int64) for column in zip(*instance, strict=True))
    return items_of(Buffers(first, last, sizes)).items


def plain_skyline(these: Items) -> list[int]:
    """Fill the lowest, leftmost run with the item of the fullest section, then the longest item."""
    n = len(these)
    first, last, sizes = these.first.tolist(), these.last.tolist(), these.sizes.tolist()
    live = [sum(sizes[k] for k in range(n) if first[k] <= s < last[k]) for s in range(these.n_sections)]
    turn = sorted(range(len(live)), key=lambda s: (-live[s], s))
    rank = sorted(
        range(n), key=lambda k: (min(turn.index(s) for s in range(first[k], last[k])), first[k] - last[k], -sizes[k], k)
    )
    heights, offsets = [0] * len(live), [-1] * n
    while min(offsets) < 0:
        edges = [0, *(s for s in range(1, len(live)) if heights[s] != heights[s - 1]), len(live)]
        runs = [(heights[a], a, b) for a, b in pairwise(edges)]
        height, begin, end = min(runs)
        inside = [k for k in rank if offsets[k] < 0 and begin <= first[k] and last[k] <= end]
        if inside:
            k = inside[0]
            offsets[k] = height
            heights[first[k] : last[k]] = [height + sizes[k]] * (last[k] - first[k])
        else:
            beside = [heights[s] for s in (begin - 1, end) if 0 <= s < len(live)]
            heights[begin:end] = [min(beside)] * (end - begin)
    return offsets


@examples(300)
@given(blocks)
def test_the_first_packing_is_the_one_of_the_plain_skyline(instance: list[Block]) -> None:
    these = items(instance)
    target = 10**9  # any packing will do, so that the first order is the last
    offsets, _ = _native.pack_by_priority(these.native(), target, False, 0)
    assert offsets.tolist() == plain_skyline(these)


@examples(200)
@given(blocks)
def test_splitting_loses_no_smallest_arena(instance: list[Block]) -> None:
    small = instance[:8]
    these = items(small)
    parts = split(these)
    heights = [int((parts.offsets + these.sizes)[parts.offsets >= 0].max(initial=0))]
    for part in parts.parts:
        rest = these.take(part.ids)
        least = least_arena(Buffers(rest.first, rest.last, rest.sizes))
        assert least is not None
        heights.append(part.base + least)
    assert max(heights) == least_arena(Buffers(these.first, these.last, these.sizes))


@examples(200)
@given(blocks)
def test_exact_search_finds_the_least_arena_and_refutes_one_byte_less(instance: list[Block]) -> None:
    these = items(instance[:9])
    least = least_arena(Buffers(these.first, these.last, these.sizes))
    assert least is not None
    native = these.native()
    found, offsets, _ = _native.pack_within(native, least, 10**8)
    assert (found, these.height(offsets)) == (0, least)
    assert _native.pack_within(native, least - 1, 10**8)[0] == 1
    assert lower_bound(these).size_bytes <= least
