"""Many buffers keep their hints, without a larger arena."""

from collections.abc import Callable
from dataclasses import replace
from itertools import combinations
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lowtide.engine.packing import FREE, Buffers, Packed, pack
from lowtide.engine.packing.items import items_of
from lowtide.engine.packing.keep_hints import clashing_pairs
from lowtide.engine.packing.validate import broken_rule, validate
from tests.examples import examples
from tests.oracles.brute_packing import least_arena
from tests.oracles.random_buffers import plain_buffers, tied_buffers

Make = Callable[[int], Buffers]
seeds = st.integers(0, 10**6)
makers = st.sampled_from([plain_buffers, tied_buffers])


def _hinted(buffers: Buffers, seed: int) -> Buffers:
    """Return random, mostly possible hints."""
    random = Random(seed)
    step = buffers.alignment.tolist()
    hints = [random.choice([FREE, 3, *(k * step[b] for k in range(6))]) for b in range(len(buffers))]
    return replace_hints(buffers, hints)


def replace_hints(buffers: Buffers, hints: list[int]) -> Buffers:
    """Return the same buffers with other hints."""
    return replace(buffers, hints=np.asarray(hints))


def _kept(packed: Packed, buffers: Buffers) -> list[int]:
    assert buffers.hints is not None
    return np.flatnonzero(packed.offsets == buffers.hints).tolist()


@given(seeds, makers)
def test_the_arena_is_as_small_as_without_hints_and_every_rule_holds(seed: int, make: Make) -> None:
    plain = make(seed)
    buffers = _hinted(plain, seed)
    packed, before = pack(buffers), pack(plain)
    validate(buffers, packed.offsets, before.arena_bytes)
    assert (packed.arena_bytes, packed.status) == (before.arena_bytes, before.status)
    if buffers.hints is not None:
        assert packed.hints_kept == len(_kept(packed, buffers))


@given(seeds, makers, st.integers(0, 20))
def test_within_a_capacity_hints_are_kept_rather_than_bytes_saved(seed: int, make: Make, spare: int) -> None:
    plain = make(seed)
    capacity = pack(plain).arena_bytes + spare
    buffers = _hinted(plain, seed)
    packed = pack(buffers, capacity=capacity)
    validate(buffers, packed.offsets, capacity)
    assert packed.status in ("optimal", "feasible")
    assert packed.hints_kept >= pack(buffers).hints_kept or packed.hints_kept > 0 or buffers.hints is None


@given(seeds, makers)
def test_a_sound_packing_as_hints_is_kept_whole(seed: int, make: Make) -> None:
    plain = make(seed)
    offsets = pack(plain).offsets
    assert (pack(replace_hints(plain, offsets.tolist())).offsets == offsets).all()


@examples(60)
@given(seeds)
def test_no_further_buffer_can_keep_its_hint(seed: int) -> None:
    buffers = _hinted(plain_buffers(seed, most=6), seed)
    if buffers.hints is None:
        return
    packed = pack(buffers)
    kept = _kept(packed, buffers)
    for other in set(range(len(buffers))) - set(kept):
        assert not _can_stay(buffers, [*kept, other], packed.arena_bytes)


def test_of_two_hundred_small_instances_nearly_all_keep_as_many_as_any_packing_could() -> None:
    missed = 0
    for seed in range(200):
        buffers = _hinted(plain_buffers(seed, most=6), seed)
        if buffers.hints is None:
            continue
        packed = pack(buffers)
        hinted = np.flatnonzero(buffers.hints != FREE).tolist()
        more = packed.hints_kept + 1
        missed += any(_can_stay(buffers, list(some), packed.arena_bytes) for some in combinations(hinted, more))
    assert missed <= 4


def _can_stay(buffers: Buffers, kept: list[int], arena: int) -> bool:
    """Return whether these buffers can keep their hints, by enumeration."""
    assert buffers.hints is not None
    fixed = np.full(len(buffers), FREE) if buffers.fixed is None else buffers.fixed.copy()
    for buffer in kept:
        hint = int(buffers.hints[buffer])
        if items_of(buffers).item_of[buffer] < 0:
            return False  # never alive
        if fixed[buffer] not in (FREE, hint) or hint == FREE or hint % buffers.alignment[buffer]:
            return False
        fixed[buffer] = hint
    least = least_arena(replace(buffers, fixed=fixed, hints=None))
    return least is not None and least <= arena


@given(seeds, makers)
def test_clashing_pairs_are_those_of_the_validator(seed: int, make: Make) -> None:
    plain = make(seed)
    layout = items_of(plain)
    random = Random(seed)
    offsets = np.asarray([random.randrange(6) * int(each) for each in layout.items.alignment], np.int64)
    free = replace(plain, fixed=None)
    clashes = len(clashing_pairs(layout.items, offsets)) > 0
    assert clashes == (broken_rule(free, layout.offsets_of(free, offsets)) is not None)


def test_a_change_in_the_middle_moves_few_buffers() -> None:
    """One of 300 buffers grows."""
    random = Random(1)
    first = [random.randrange(1000) for _ in range(300)]
    last = [step + random.randint(1, 200) for step in first]
    sizes = [random.randint(1, 64) * 16 for _ in range(300)]
    before = pack(Buffers(first, last, sizes))
    sizes[150] += 64
    buffers = Buffers(first, last, sizes, hints=before.offsets)
    after = pack(buffers, capacity=before.arena_bytes + 640)
    assert after.arena_bytes <= before.arena_bytes + 640
    assert after.hints_kept > 280


@pytest.mark.parametrize("method", ["best-fit-by-size", None])
def test_a_named_rule_ignores_hints(method: str | None) -> None:
    packed = pack(Buffers([0, 0], [5, 5], [4, 2], hints=[2, 0]), method=method)
    assert packed.hints_kept == (0 if method else 2)
