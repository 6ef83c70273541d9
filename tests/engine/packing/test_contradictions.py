"""Constraints that contradict one another are refused before packing, by name."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lowtide.core.errors import MalformedInputError
from lowtide.engine.packing import FREE, Buffers, pack
from lowtide.engine.packing.validate import validate
from tests.oracles.brute_packing import least_arena
from tests.oracles.random_buffers import plain_buffers

ALWAYS = {"first": [0] * 4, "last": [9] * 4, "sizes": [4] * 4, "names": "abcd"}


@pytest.mark.parametrize(
    ("constraints", "message"),
    [
        (
            {"fixed": [FREE, 8, FREE, 6]},
            r"b \(offsets 8 to 12\) and d \(offsets 6 to 10\) share bytes at step 0; move or free one",
        ),
        ({"fixed": [0, 0, 0, 0], "gaps": [[k, 0, 9] for k in (0, 2, 3)], "apart": [[0, 1]]}, ""),
        ({"fixed": [2, 4, FREE, FREE], "aliases": [[0, 1]]}, "fixed offsets of b and a contradict their group"),
        ({"fixed": [2, FREE, FREE, 4], "aliases": [[0, 1]]}, r"a \(.*\) and d \(.*\) share bytes"),
        ({"fixed": [2, FREE, FREE, 4], "aliases": [[1, 0]], "may_overlap": [[0, 3]]}, r"b \(.*\) and d \(.*\) share"),
        ({"fixed": [0, FREE, FREE, 6], "contiguous": [[0, 1]]}, r"b \(offsets 4 to 8\) and d \(.*\) share bytes"),
        ({"aliases": [[0, 1, 2]], "apart": [[3, 1], [2, 0]]}, "c and a share an offset but must be apart"),
    ],
)
def test_the_pair_at_fault_is_named(constraints: dict[str, object], message: str) -> None:
    buffers = Buffers(**ALWAYS, **constraints)  # pyright: ignore[reportArgumentType]
    if not message:
        assert pack(buffers).arena_bytes == 4
        return
    with pytest.raises(MalformedInputError, match=message):
        pack(buffers)


def test_fixed_buffers_that_are_apart_and_never_alive_together_clash_all_the_same() -> None:
    with pytest.raises(MalformedInputError, match=r"a .* and b .* must never share bytes"):
        pack(Buffers([0, 5], [5, 9], [4, 4], fixed=[0, 3], apart=[[0, 1]], names="ab"))


@given(st.integers(0, 10**6), st.lists(st.integers(FREE, 12), min_size=9, max_size=9))
def test_fixed_offsets_are_refused_just_when_enumeration_finds_no_packing(seed: int, offsets: list[int]) -> None:
    plain = plain_buffers(seed, most=6)
    fixed = [
        FREE if offset == FREE else offset * int(plain.alignment[k]) for k, offset in enumerate(offsets[: len(plain)])
    ]
    gaps, alignment = plain.gaps, plain.alignment
    buffers = Buffers(plain.first, plain.last, plain.sizes, gaps=gaps, alignment=alignment, fixed=fixed)
    if least_arena(buffers) is None:
        with pytest.raises(MalformedInputError, match="clash"):
            pack(buffers)
    else:
        validate(buffers, pack(buffers).offsets)


def test_taken_buffers_keep_the_constraints_among_them() -> None:
    buffers = Buffers(
        [0, 1, 2, 3],
        [9, 9, 9, 9],
        [4, 5, 6, 7],
        alignment=[1, 2, 3, 4],
        fixed=[FREE, FREE, 3, FREE],
        hints=[1, 2, 3, 4],
        gaps=[[0, 1, 2], [3, 5, 6]],
        aliases=[[0, 3]],
        contiguous=[[1, 2]],
        may_overlap=[[0, 1], [3, 0]],
        apart=[[0, 2], [0, 3]],
        names="abcd",
    )
    some = buffers.take(np.asarray([3, 0]))
    assert [some.name(k) for k in range(2)] == ["d", "a"]
    for column, expected in {"first": [3, 0], "sizes": [7, 4], "alignment": [4, 1], "hints": [4, 1]}.items():
        assert getattr(some, column).tolist() == expected
    assert (some.fixed, some.contiguous, some.aliases) == (None, (), ((1, 0),))
    rows = (some.gaps, some.may_overlap, some.apart)
    assert [None if row is None else row.tolist() for row in rows] == [[[1, 1, 2], [0, 5, 6]], [[0, 1]], [[1, 0]]]
    everyone = buffers.take(np.arange(4))
    for one, two in combinations((buffers, everyone), 2):
        assert one.contiguous == two.contiguous == ((1, 2),)
