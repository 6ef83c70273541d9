"""Improvement of one part: heights on the grid of the sizes, and descents from looser packings."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lowtide import _native
from lowtide.core.effort import PACKING_EFFORTS
from lowtide.engine.packing import Buffers
from lowtide.engine.packing.bound import lower_bound
from lowtide.engine.packing.improve import Improvement, common_divisor, descend, improve, low_starts
from lowtide.engine.packing.items import Items, items_of
from lowtide.engine.packing.rules import stacked
from lowtide.engine.packing.validate import validate
from tests.examples import examples
from tests.oracles.brute_packing import least_arena

UNIT = 1024
blocks = st.lists(
    st.tuples(st.integers(0, 5), st.integers(1, 4), st.integers(1, 9), st.sampled_from([1, 2, 4, 8])),
    min_size=1,
    max_size=6,
)


def scattered(seed: int) -> Buffers:
    rng = np.random.default_rng(seed)
    first = rng.integers(0, 200, 120)
    return Buffers(first, first + rng.integers(1, 100, 120), UNIT * rng.integers(1, 200, 120))


def stacked_state(items: Items) -> Improvement:
    offsets = stacked(items)
    return Improvement(items, offsets, items.height(offsets), lower_bound(items).size_bytes)


@examples(100)
@given(blocks, st.sampled_from([1, 4, 6, 8]))
def test_the_least_arena_is_a_multiple_of_the_common_divisor(
    instance: list[tuple[int, int, int, int]], unit: int
) -> None:
    first, lives, sizes, alignment = np.asarray(instance, np.int64).T
    buffers = Buffers(first, first + lives, unit * sizes, alignment=alignment)
    least = least_arena(buffers)
    assert least is not None
    assert least % common_divisor(items_of(buffers).items) == 0


@pytest.mark.parametrize("seed", [0, 2])
def test_ejection_keeps_offsets_multiples_of_what_divides_all_sizes(seed: int) -> None:
    items = items_of(scattered(seed)).items
    bound = lower_bound(items).size_bytes
    state = stacked_state(items)
    effort = replace(PACKING_EFFORTS["fast"], priority_work=2_000_000, exact_items=0)
    methods: list[str] = []
    for _ in improve(state, bound + UNIT // 2, effort, only_goal=False):
        methods.append(state.method)
        assert (state.offsets % UNIT == 0).all()
    assert "ejection" in methods


@pytest.mark.parametrize("seed", [0, 2])
def test_a_descent_ends_in_a_valid_packing_below_its_start_and_never_raises_the_best(seed: int) -> None:
    buffers = scattered(seed)
    layout = items_of(buffers)
    bound = lower_bound(layout.items).size_bytes
    goal = bound + bound // 16 // UNIT * UNIT
    state, again = stacked_state(layout.items), stacked_state(layout.items)
    for one in (state, again):
        (start, *_) = low_starts(one, goal, 4_000_000)
        descend(one, goal, start, 5_000_000, seed=1)
    validate(buffers, layout.offsets_of(buffers, state.offsets), state.height)
    assert bound <= state.height <= max(goal, state.items.height(start) - UNIT)
    assert (state.offsets.tolist(), state.work) == (again.offsets.tolist(), again.work)
    reached = state.height
    descend(state, goal, start, 10_000, seed=2)
    assert state.height <= reached


@pytest.mark.parametrize("seed", range(4))
def test_what_ejection_returns_has_no_item_that_can_move_down(seed: int) -> None:
    items = items_of(scattered(seed)).items
    raised = stacked(items) + UNIT
    height = items.height(raised)
    fit, offsets, _ = _native.pack_within_by_ejection(items.native(), raised, height, 1_000_000)
    assert fit == 0
    tops = offsets + items.sizes
    for item, offset in enumerate(offsets.tolist()):
        meets = (items.first < items.last[item]) & (items.first[item] < items.last) & (tops <= offset)
        assert offset == tops[meets].max(initial=0)
