"""The second exact search: the same answers with and without each inference, and those of two oracles."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lowtide import _native
from lowtide.engine.packing import Buffers
from lowtide.engine.packing.bound import lower_bound
from lowtide.engine.packing.csv_file import read_buffer_file
from lowtide.engine.packing.items import Items, items_of
from lowtide.engine.packing.validate import validate
from tests.examples import examples
from tests.oracles.brute_packing import least_arena
from tests.oracles.canonical_packing import RANKS, first_packing

FOUND, IMPOSSIBLE, STOPPED = 0, 1, 2
ALL, DECOMPOSE, RANK_PARTS = 255, 32, 64
INFERENCES = [1 << bit for bit in range(8)]
SWITCHES = [ALL, 0, *(ALL & ~one for one in INFERENCES), *(one | 1 for one in INFERENCES)]
"""All, none, all but one, and one alone with the floors that another needs."""
PLENTY = 10**8
PUBLISHED = Path(__file__).parents[3] / "benchmarks" / "buffers"

blocks = st.lists(
    st.tuples(st.integers(0, 6), st.integers(1, 5), st.integers(1, 9), st.sampled_from([1, 1, 2, 4])),
    min_size=1,
    max_size=7,
)
Block = tuple[int, int, int, int]


def buffers_of(instance: list[Block]) -> Buffers:
    first, lives, sizes, alignment = np.asarray(instance, np.int64).T
    return Buffers(first, first + lives, sizes, alignment=alignment)


def fit(items: Items, capacity: int, inferences: int = ALL, work: int = PLENTY) -> tuple[int, list[int]]:
    found, offsets, _ = _native.pack_within_canonically(items.native(), items.steps, capacity, work, inferences)
    return found, offsets.tolist()


@examples(150)
@given(blocks)
def test_every_set_of_inferences_finds_the_least_arena_and_refutes_one_byte_less(instance: list[Block]) -> None:
    buffers = buffers_of(instance)
    least, layout = least_arena(buffers), items_of(buffers)
    assert least is not None
    for inferences in SWITCHES:
        found, offsets = fit(layout.items, least, inferences)
        assert found == FOUND, inferences
        validate(buffers, layout.offsets_of(buffers, np.asarray(offsets)), least)
        assert fit(layout.items, least - 1, inferences)[0] == IMPOSSIBLE, inferences


@examples(100)
@given(blocks, st.integers(0, 3))
def test_without_decomposition_the_first_packing_in_canonical_order_is_found(instance: list[Block], spare: int) -> None:
    buffers = buffers_of(instance)
    capacity = (least_arena(buffers) or 0) + spare
    firsts = [first_packing(buffers, capacity, which) for which in RANKS]
    for inferences in SWITCHES:
        _, offsets = fit(items_of(buffers).items, capacity, inferences & ~(DECOMPOSE | RANK_PARTS))
        assert offsets in firsts, inferences
    assert firsts[0] is not None


@pytest.mark.parametrize("name", "ABCDE")
def test_published_instances_fit_their_capacity_soon(name: str) -> None:
    buffers = read_buffer_file(PUBLISHED / f"minimalloc_{name}.csv").buffers
    layout = items_of(buffers)
    found, offsets = fit(layout.items, 1_048_576, work=200_000_000)
    assert found == FOUND
    validate(buffers, layout.offsets_of(buffers, np.asarray(offsets)), 1_048_576)


def test_work_is_limited_and_the_same_on_every_run() -> None:
    items = items_of(read_buffer_file(PUBLISHED / "minimalloc_D.csv").buffers).items
    least = lower_bound(items).size_bytes
    answers = [_native.pack_within_canonically(items.native(), items.steps, least, 1_000_000) for _ in range(2)]
    assert [answer[0] for answer in answers] == [STOPPED] * 2
    assert answers[0][2] == answers[1][2] < 1_100_000


def test_only_plain_rectangles_are_taken() -> None:
    fixed = items_of(Buffers([0], [1], [4], fixed=[0])).items
    gaps = items_of(Buffers([0, 1], [4, 2], [4, 4], gaps=[(0, 1, 2)])).items
    for items in (fixed, gaps):
        with pytest.raises(ValueError, match="only plain rectangles"):
            fit(items, 8)
    plain = items_of(Buffers([0], [1], [4])).items
    with pytest.raises(ValueError, match="needs its steps"):
        _native.pack_within_canonically(plain.native(), np.zeros(0, np.int64), 8, PLENTY)
