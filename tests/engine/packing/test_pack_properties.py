"""Properties of every packing: determinism, bounds, published rules, capacities, input order."""

from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lowtide.engine.packing import Buffers, pack
from lowtide.engine.packing.items import items_of
from lowtide.engine.packing.rules import RULES
from lowtide.engine.packing.validate import validate
from tests.examples import examples
from tests.oracles.random_buffers import plain_buffers, tied_buffers

seeds = st.integers(0, 10**6)
few = examples(25)


def _some_buffers(seed: int) -> Buffers:
    """Return up to 60 rectangles, or few buffers with all kinds of constraints."""
    random = Random(seed)
    kind = random.randrange(4)
    if kind < 2:
        return (plain_buffers, tied_buffers)[kind](seed)
    n, steps = random.randint(1, 60), random.choice([5, 20, 100])
    first = [random.randrange(steps) for _ in range(n)]
    last = [step + random.randint(0, steps // 2) for step in first]
    sizes = [random.choice([0, 1, 7, 64, 100, 512]) * random.randint(1, 4) for _ in range(n)]
    return Buffers(first, last, sizes, alignment=[random.choice([1, 16, 64]) if kind == 2 else 1 for _ in range(n)])


@few
@given(seeds)
def test_equal_input_gives_equal_offsets(seed: int) -> None:
    one, two = (pack(_some_buffers(seed), effort="fast") for _ in range(2))
    assert (one.offsets == two.offsets).all()
    assert (one.status, one.method, one.work, one.bound_holders) == (
        two.status,
        two.method,
        two.work,
        two.bound_holders,
    )


@few
@given(seeds)
def test_the_arena_is_between_the_bound_and_every_published_rule(seed: int) -> None:
    buffers = _some_buffers(seed)
    packed = pack(buffers, effort="fast")
    validate(buffers, packed.offsets, packed.arena_bytes)
    assert packed.lower_bound_bytes <= packed.arena_bytes
    items = items_of(buffers).items
    assert all(packed.arena_bytes <= items.height(rule(items)) for rule in RULES.values())


def test_five_thousand_buffers_are_packed_no_worse_than_by_any_published_rule() -> None:
    random = Random(5)
    first = [random.randrange(2_500) for _ in range(5_000)]
    last = [step + random.randint(1, random.choice([5, 300])) for step in first]
    buffers = Buffers(first, last, [random.randint(1, 5000) for _ in first])
    arena = pack(buffers, effort="fast").arena_bytes
    items = items_of(buffers).items
    for name in ("best-fit-by-size", "best-fit-by-birth", "first-fit-by-birth"):
        assert arena <= items.height(RULES[name](items))


@few
@given(seeds)
def test_the_arena_is_a_capacity_that_fits_and_below_an_optimal_one_none_does(seed: int) -> None:
    buffers = _some_buffers(seed)
    packed = pack(buffers, effort="fast")
    kept = pack(buffers, capacity=packed.arena_bytes, effort="fast")
    validate(buffers, kept.offsets, packed.arena_bytes)
    assert kept.status in ("optimal", "feasible")
    if packed.optimal and packed.arena_bytes:
        missed = pack(buffers, capacity=packed.arena_bytes - 1, effort="fast")
        assert missed.status == "infeasible"
        assert missed.conflict


@few
@given(seeds, st.randoms(use_true_random=False))
def test_the_least_arena_does_not_depend_on_the_order_of_the_buffers(seed: int, random: Random) -> None:
    buffers = _some_buffers(seed)
    order = np.asarray(random.sample(range(len(buffers)), len(buffers)), np.intp)
    packed, shuffled = pack(buffers, effort="fast"), pack(buffers.take(order), effort="fast")
    if packed.optimal and shuffled.optimal:
        assert packed.arena_bytes == shuffled.arena_bytes
    assert max(packed.lower_bound_bytes, shuffled.lower_bound_bytes) <= min(packed.arena_bytes, shuffled.arena_bytes)


@pytest.mark.parametrize("capacity", [None, 0, 5])
def test_no_buffers_need_no_bytes(capacity: int | None) -> None:
    packed = pack(Buffers([], [], []), capacity=capacity)
    assert (packed.arena_bytes, packed.status, packed.conflict) == (0, "optimal", ())


@pytest.mark.share_of_cases
@pytest.mark.parametrize("seed", [101, 83, 75])
def test_a_capacity_that_is_missed_never_makes_the_arena_larger(seed: int) -> None:
    buffers = plain_buffers(seed, 40)
    free = pack(buffers, effort="fast")
    assert free.lower_bound_bytes < free.arena_bytes
    for capacity in {free.lower_bound_bytes, (free.lower_bound_bytes + free.arena_bytes) // 2}:
        assert pack(buffers, capacity=capacity, effort="fast").arena_bytes <= free.arena_bytes
