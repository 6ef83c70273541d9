"""`pack` against enumeration: the least arena, and capacities at and below it, of small instances with constraints."""

from collections.abc import Callable

import pytest

from lowtide.engine.packing import Buffers, pack
from lowtide.engine.packing.validate import validate
from tests.oracles.brute_packing import least_arena
from tests.oracles.random_buffers import plain_buffers, tied_buffers

BATCH = 50
Make = Callable[[int], Buffers]


@pytest.mark.parametrize("start", range(0, 300, BATCH))
@pytest.mark.parametrize("make", [plain_buffers, tied_buffers])
def test_the_arena_is_the_least_there_is_and_known_to_be(make: Make, start: int) -> None:
    for seed in range(start, start + BATCH):
        buffers = make(seed)
        packed = pack(buffers)
        validate(buffers, packed.offsets, packed.arena_bytes)
        assert (packed.arena_bytes, packed.lower_bound_bytes) == (least_arena(buffers),) * 2, seed
        assert (packed.status, packed.optimal, packed.conflict) == ("optimal", True, ()), seed


@pytest.mark.parametrize("start", range(0, 150, BATCH))
@pytest.mark.parametrize("make", [plain_buffers, tied_buffers])
def test_the_least_arena_is_a_capacity_that_is_kept_and_a_byte_less_is_proven_impossible(
    make: Make, start: int
) -> None:
    for seed in range(start, start + BATCH):
        buffers = make(seed)
        least = least_arena(buffers)
        assert least is not None
        kept = pack(buffers, capacity=least)
        validate(buffers, kept.offsets, least)
        assert kept.status in ("optimal", "feasible"), seed
        if least > 0:
            missed = pack(buffers, capacity=least - 1)
            validate(buffers, missed.offsets)
            assert (missed.status, bool(missed.conflict)) == ("infeasible", True), seed


def test_buffers_said_not_to_fit_cannot_and_none_of_them_can_be_left_out() -> None:
    for seed in range(2 * BATCH):
        buffers = plain_buffers(seed)
        least = least_arena(buffers)
        if not least:
            continue
        conflict = pack(buffers, capacity=least - 1).conflict
        assert not _fit(buffers, conflict, least - 1), seed
        for buffer in conflict:
            assert _fit(buffers, tuple(k for k in conflict if k != buffer), least - 1), seed


def _fit(buffers: Buffers, chosen: tuple[int, ...], capacity: int) -> bool:
    """Whether some of the buffers, without the others, fit a capacity."""
    ids = list(chosen)
    gaps = [] if buffers.gaps is None else buffers.gaps.tolist()
    some = Buffers(
        buffers.first[ids],
        buffers.last[ids],
        buffers.sizes[ids],
        alignment=buffers.alignment[ids],
        fixed=None if buffers.fixed is None else buffers.fixed[ids],
        gaps=[[ids.index(k), first, last] for k, first, last in gaps if k in ids],
    )
    least = least_arena(some)
    return least is not None and least <= capacity
