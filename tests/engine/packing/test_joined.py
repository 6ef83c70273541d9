"""Packing joined blocks gives valid packings, and dissected rectangles are restored."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lowtide import _native
from lowtide.core.effort import PACKING_EFFORTS
from lowtide.core.progress import silent
from lowtide.engine.packing import Buffers, pack
from lowtide.engine.packing.items import items_of
from lowtide.engine.packing.search import PackSearch
from lowtide.engine.packing.validate import validate
from tests.examples import examples
from tests.oracles.brute_packing import least_arena

FOUND, STOPPED = 0, 2
joins_of = st.integers(0, 63)
"""Return the enabled kinds: parallel, series, wheel, holes, pads, cuts."""

blocks = st.lists(
    st.tuples(st.integers(0, 6), st.integers(1, 5), st.integers(1, 9), st.sampled_from([1, 1, 2, 4])),
    min_size=1,
    max_size=7,
)


def buffers_of(instance: list[tuple[int, int, int, int]]) -> Buffers:
    first, lives, sizes, alignment = np.asarray(instance, np.int64).T
    return Buffers(first, first + lives, sizes, alignment=alignment)


def dissected(seed: int, n: int, *, wheels: bool) -> tuple[Buffers, int]:
    """Cut a rectangle into at least n random pieces; return them with its height."""
    rng = np.random.default_rng(seed)
    width, height = 10**15 + 7, 10**15 + 37
    pieces = [(0, width, 0, height)]
    while len(pieces) < n:
        chosen = max(rng.integers(len(pieces), size=4), key=lambda k: (pieces[k][1] - pieces[k][0], pieces[k]))
        first, last, low, high = pieces.pop(int(chosen))
        early, late = (
            first + int((last - first) * rng.uniform(0.1, 0.4)),
            last - int((last - first) * rng.uniform(0.1, 0.4)),
        )
        under, over = low + int((high - low) * rng.uniform(0.1, 0.4)), low + int((high - low) * rng.uniform(0.5, 0.9))
        if wheels and rng.random() < 0.3 and first < early < late < last:
            pieces += [
                (first, late, low, under),
                (late, last, low, over),
                (early, last, over, high),
                (first, early, under, high),
                (early, late, under, over),
            ]
        elif rng.random() < 0.5 and first < early:
            pieces += [(first, early, low, high), (early, last, low, high)]
        else:
            pieces += [(first, last, low, under), (first, last, under, high)]
    first, last, low, high = rng.permutation(np.asarray(pieces)).T
    return Buffers(first, last, high - low), height


@examples(100)
@given(blocks, st.integers(0, 2), joins_of)
def test_every_set_of_joins_gives_packings_within_the_capacity(
    instance: list[tuple[int, int, int, int]], spare: int, joins: int
) -> None:
    buffers = buffers_of(instance)
    least, layout = least_arena(buffers), items_of(buffers)
    assert least is not None
    fit, offsets, _ = _native.pack_within_joined(layout.items.native(), least + spare, 2_000, joins)
    assert fit in (FOUND, STOPPED)
    if fit == FOUND:
        validate(buffers, layout.offsets_of(buffers, offsets), least + spare)
    assert _native.pack_within_joined(layout.items.native(), least - 1, 2_000, joins)[0] == STOPPED


@given(blocks)
def test_the_penalty_loop_over_blocks_gives_a_packing(instance: list[tuple[int, int, int, int]]) -> None:
    buffers = buffers_of(instance)
    layout = items_of(buffers)
    offsets, _ = _native.pack_joined_by_priority(layout.items.native(), least_arena(buffers) or 0, 100_000)
    validate(buffers, layout.offsets_of(buffers, offsets))


@pytest.mark.parametrize("wheels", [False, True])
@pytest.mark.parametrize("seed", range(5))
def test_a_dissected_rectangle_is_packed_at_its_height(seed: int, wheels: bool) -> None:
    buffers, height = dissected(seed, 300, wheels=wheels)
    layout = items_of(buffers)
    fit, offsets, work = _native.pack_within_joined(layout.items.native(), height, 10**6)
    assert fit == FOUND
    assert work < 10**6
    validate(buffers, layout.offsets_of(buffers, offsets), height)


def cut_in_few_steps(seed: int, n: int, left_out: float) -> tuple[Buffers, int]:
    """Bisect a rectangle of 150 steps repeatedly; drop pieces not alive in the middle."""
    rng = np.random.default_rng(seed)
    steps, height = 150, 10**12
    pieces = [(0, steps, 0, height)]
    while len(pieces) < n:
        area = [(last - first) * (high - low) for first, last, low, high in pieces]
        first, last, low, high = pieces.pop(max(rng.integers(len(pieces), size=4).tolist(), key=area.__getitem__))
        if rng.random() < 0.5 and last - first > 1:
            cut = int(rng.integers(first + 1, last))
            pieces += [(first, cut, low, high), (cut, last, low, high)]
        else:
            cut = low + int((high - low) * rng.uniform(0.2, 0.8))
            pieces += [(first, last, low, cut), (first, last, cut, high)]
    rows = np.asarray(pieces)
    in_the_middle = (rows[:, 0] <= steps // 2) & (rows[:, 1] > steps // 2)
    first, last, low, high = rng.permutation(rows[in_the_middle | (rng.random(n) >= left_out)]).T
    return Buffers(first, last, high - low), height


@pytest.mark.parametrize("left_out", [0, 0.05])
@pytest.mark.parametrize("seed", [1, 2, 5])
def test_several_cuts_at_one_moment_are_distinguished(seed: int, left_out: float) -> None:
    buffers, height = cut_in_few_steps(seed, 300, left_out)
    layout = items_of(buffers)
    assert _native.pack_within_joined(layout.items.native(), height, 12_000_000, 31)[0] == STOPPED
    fit, offsets, _ = _native.pack_within_joined(layout.items.native(), height, 12_000_000)
    assert fit == FOUND
    validate(buffers, layout.offsets_of(buffers, offsets), height)


def test_work_is_limited_and_the_same_on_every_run() -> None:
    buffers, height = dissected(0, 200, wheels=True)
    items = items_of(buffers).items
    answers = [_native.pack_within_joined(items.native(), height - 1, 1_000_000) for _ in range(2)]
    assert [answer[0] for answer in answers] == [STOPPED] * 2
    assert answers[0][2] == answers[1][2] < 1_500_000


def test_parts_with_too_many_buffers_for_exact_search_are_joined_for_the_penalty_loop() -> None:
    """For 3,000 pieces of a rectangle, rules end above its height; blocks reach it."""
    buffers, height = dissected(1, 3_000, wheels=True)
    search = PackSearch(items_of(buffers).items, None, PACKING_EFFORTS["balanced"], silent)
    search.run()
    assert search.height == height
    assert pack(buffers, method="best-fit-by-size").arena_bytes > height


def test_only_plain_rectangles_are_taken() -> None:
    fixed = items_of(Buffers([0], [1], [4], fixed=[0])).items.native()
    with pytest.raises(ValueError, match="only plain rectangles"):
        _native.pack_within_joined(fixed, 8, 100)
    with pytest.raises(ValueError, match="only plain rectangles"):
        _native.pack_joined_by_priority(fixed, 8, 100)
