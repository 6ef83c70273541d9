"""Repair by ejection: a packing within the capacity, or none."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lowtide import _native
from lowtide.engine.packing import Buffers, pack
from lowtide.engine.packing.bound import lower_bound
from lowtide.engine.packing.items import items_of
from lowtide.engine.packing.rules import stacked
from lowtide.engine.packing.validate import validate
from tests.examples import examples

FOUND, STOPPED = 0, 2
SOME, PLENTY = 10**5, 10**7

blocks = st.lists(
    st.tuples(st.integers(0, 9), st.integers(1, 6), st.integers(1, 9), st.sampled_from([1, 1, 2, 4])),
    min_size=1,
    max_size=12,
)


def buffers_of(instance: list[tuple[int, int, int, int]]) -> Buffers:
    first, lives, sizes, alignment = np.asarray(instance, np.int64).T
    return Buffers(first, first + lives, sizes, alignment=alignment)


@examples(100)
@given(blocks, st.integers(0, 8))
def test_a_repaired_packing_is_valid_and_within_the_capacity(
    instance: list[tuple[int, int, int, int]], more: int
) -> None:
    buffers = buffers_of(instance)
    layout = items_of(buffers)
    capacity = lower_bound(layout.items).size_bytes + more
    start = stacked(layout.items)
    fit, offsets, _ = _native.pack_within_by_ejection(layout.items.native(), start, capacity, SOME)
    assert fit in (FOUND, STOPPED)
    if fit == FOUND:
        validate(buffers, layout.offsets_of(buffers, offsets))
        assert layout.items.height(offsets) <= capacity


@pytest.mark.parametrize("seed", range(3))
def test_items_stacked_without_a_gap_are_repaired_to_the_bound(seed: int) -> None:
    rng = np.random.default_rng(seed)
    first = rng.integers(0, 40, 60)
    items = items_of(Buffers(first, first + rng.integers(1, 8, 60), rng.integers(1, 5, 60))).items
    bound = lower_bound(items).size_bytes
    start = stacked(items)
    fit, offsets, work = _native.pack_within_by_ejection(items.native(), start, bound, PLENTY)
    again = _native.pack_within_by_ejection(items.native(), start, bound, PLENTY)
    assert fit == FOUND
    assert items.height(offsets) == bound
    assert (again[1].tolist(), again[2]) == (offsets.tolist(), work)


def test_no_start_fits_a_capacity_below_the_largest_item() -> None:
    items = items_of(Buffers([0], [2], [8])).items
    assert _native.pack_within_by_ejection(items.native(), np.zeros(1, np.int64), 7, PLENTY)[0] == STOPPED


@examples(30)
@given(blocks)
def test_pack_is_never_above_the_greedy_rules_nor_below_the_bound(instance: list[tuple[int, int, int, int]]) -> None:
    buffers = buffers_of(instance)
    packed = pack(buffers, effort="fast")
    greedy = min(pack(buffers, method=rule).arena_bytes for rule in ("best-fit-by-size", "first-fit-by-birth"))
    assert packed.lower_bound_bytes <= packed.arena_bytes <= greedy
