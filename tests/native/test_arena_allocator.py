"""The allocator of ONNX Runtime sessions without ONNX Runtime: whatever comes, no block is anybody else's."""

import ctypes
import mmap
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random
from typing import Any

import pytest

from lowtide import _native

NONE, ARENA_IN_USE, OTHER_SIZE, MORE_ALLOCATIONS, ADDRESS_IN_USE = range(5)


def _library() -> Any:
    library: Any = ctypes.CDLL(str(Path(_native.__file__).with_name("arena_allocator.so")))
    for name in ("allocate", "arena_create", "addresses_create", "run_begin"):
        getattr(library, f"lowtide_{name}").restype = ctypes.c_void_p
    for name in ("arena_bytes", "arena_live_blocks", "arena_trim", "live_bytes", "block_bytes"):
        getattr(library, f"lowtide_{name}").restype = ctypes.c_int64
    return library


LIBRARY = _library()


class Block:
    """A block full of one byte, which must still be there when it is freed."""

    def __init__(self, size: int, content: int) -> None:
        self.size, self.content = size, content % 256
        self.at = ctypes.c_void_p(LIBRARY.lowtide_allocate(ctypes.c_int64(size)))
        assert self.at.value
        assert self.at.value % 64 == 0
        ctypes.memset(self.at, self.content, size)

    def free(self) -> None:
        held = ctypes.string_at(self.at, self.size)
        assert held == bytes([self.content]) * self.size
        LIBRARY.lowtide_release(self.at)


class Arena:
    """A handle."""

    def __init__(self) -> None:
        self.handle = ctypes.c_void_p(LIBRARY.lowtide_arena_create())

    def close(self) -> None:
        LIBRARY.lowtide_arena_destroy(self.handle)

    @property
    def live_blocks(self) -> int:
        return LIBRARY.lowtide_arena_live_blocks(self.handle)

    def begin(self, sizes: Sequence[int] | None, offsets: Sequence[int] = (), bytes_: int = 0) -> "Run":
        return Run(self, sizes, offsets, bytes_)


class Run:
    """A run of this thread."""

    def __init__(self, arena: Arena, sizes: Sequence[int] | None, offsets: Sequence[int], bytes_: int) -> None:
        self.addresses = None
        if sizes is not None:
            array = ctypes.c_int64 * len(sizes)
            made = LIBRARY.lowtide_addresses_create(
                ctypes.c_int64(len(sizes)), array(*sizes), array(*offsets), ctypes.c_int64(bytes_)
            )
            self.addresses = ctypes.c_void_p(made)
        self.handle = ctypes.c_void_p(LIBRARY.lowtide_run_begin(arena.handle, self.addresses))

    def end(self) -> tuple[int, int, int]:
        """End it and return how many allocations it had, how many were served, and the deviation."""
        LIBRARY.lowtide_run_end(self.handle)
        report = (ctypes.c_int64 * 3)()
        LIBRARY.lowtide_run_report(self.handle, report)
        self.rows = (ctypes.c_int64 * (3 * report[0]))()
        if self.addresses is None:
            LIBRARY.lowtide_run_recorded(self.handle, self.rows)
        else:
            LIBRARY.lowtide_addresses_destroy(self.addresses)
        LIBRARY.lowtide_run_finish(self.handle)
        return report[0], report[1], report[2]


@pytest.fixture(name="arena")
def arena_fixture() -> Iterator[Arena]:
    arena = Arena()
    yield arena
    arena.close()


def test_a_recorded_run_says_what_was_alive_when(arena: Arena) -> None:
    """Events count allocations and frees; what is freed after the run outlives it."""
    run = arena.begin(None)
    first, second = Block(100, 1), Block(200, 2)
    first.free()
    third = Block(300, 3)
    second.free()
    assert run.end() == (3, 0, NONE)
    third.free()
    assert list(run.rows) == [100, 0, 2, 200, 1, 4, 300, 3, -1]


def test_blocks_lie_where_they_were_planned(arena: Arena) -> None:
    """Two blocks of one address, one after the other, and one beside them."""
    run = arena.begin([64, 64, 64], [0, 128, 0], 256)
    first, second = Block(64, 1), Block(64, 2)
    first.free()
    third = Block(64, 3)
    assert first.at.value == third.at.value
    assert second.at.value == first.at.value + 128
    assert arena.live_blocks == 2
    second.free()
    third.free()
    assert run.end() == (3, 3, NONE)
    assert arena.live_blocks == 0


@pytest.mark.parametrize(
    ("asked", "deviation", "served"),
    [
        ([64, 65, 64], OTHER_SIZE, 1),
        ([64, 64, 64, 64], MORE_ALLOCATIONS, 3),
        ([64, 64], NONE, 2),
    ],
)
def test_a_run_that_allocates_otherwise_goes_on_elsewhere(
    arena: Arena, asked: list[int], deviation: int, served: int
) -> None:
    """From the first deviation on nothing comes from the arena."""
    run = arena.begin([64, 64, 64], [0, 128, 256], 384)
    blocks = [Block(size, number) for number, size in enumerate(asked)]
    assert arena.live_blocks == served
    for block in blocks:
        block.free()
    assert run.end() == (len(asked), served, deviation)


def test_an_address_that_is_taken_is_not_given_twice(arena: Arena) -> None:
    """A plan that overlaps itself, or a block that outlives its run, costs an ordinary allocation and nothing more."""
    run = arena.begin([64, 64], [0, 64], 192)
    blocks = [Block(64, 1), Block(64, 2)]
    assert run.end() == (2, 1, ADDRESS_IN_USE)
    again = arena.begin([64], [0], 192)
    blocks.append(Block(64, 3))
    assert again.end() == (1, 0, ADDRESS_IN_USE)
    larger = arena.begin([64], [256], 512)
    blocks.append(Block(64, 4))
    assert larger.end() == (1, 0, ARENA_IN_USE)
    for block in blocks:
        block.free()


def test_addresses_outside_are_not_given(arena: Arena) -> None:
    """Addresses that come from a file may be anything."""
    run = arena.begin([64, 64, 64], [2**62, 64, 128], 128)
    blocks = [Block(64, 1)]
    assert run.end()[2] == ADDRESS_IN_USE
    run = arena.begin([64], [64], 128)
    blocks.append(Block(64, 2))
    assert run.end()[2] == ADDRESS_IN_USE
    for block in blocks:
        block.free()


def test_blocks_outlive_their_arena() -> None:
    """The region stays until its last block is freed, and pages are not given back before."""
    arena = Arena()
    run = arena.begin([1000], [0], 2048)
    block = Block(1000, 7)
    assert run.end()[2] == NONE
    assert LIBRARY.lowtide_arena_trim(arena.handle) == 0
    arena.close()
    block.free()


def test_a_run_within_a_run_has_blocks_of_its_own(arena: Arena) -> None:
    """A node that runs another session does not disturb the one around it."""
    outer = arena.begin([64, 64], [0, 128], 256)
    first = Block(64, 1)
    inner = arena.begin([64], [128], 256)
    second = Block(64, 2)
    assert inner.end() == (1, 0, ARENA_IN_USE)
    third = Block(64, 3)
    assert outer.end() == (2, 2, NONE)
    for block in (first, second, third):
        block.free()


def _with_results(arena: Arena, *sizes: int) -> list[Block]:
    """Return what a run leaves behind."""
    run = arena.begin(sizes, [-1] * len(sizes))
    blocks = [Block(size, number) for number, size in enumerate(sizes)]
    assert run.end() == (len(sizes), 0, NONE)
    return blocks


def test_what_outlives_a_run_lies_together_and_in_the_same_place_again(arena: Arena) -> None:
    """Results take no pages of their own each, and the next run finds those that were let go."""
    first = _with_results(arena, 100_000, 100_000, 20_000)
    places = [block.at.value or 0 for block in first]
    assert [place - places[0] for place in places] == [0, 100_032 + 64, 2 * (100_032 + 64)]
    for block in first:
        block.free()
    second = _with_results(arena, 100_000, 100_000, 20_000)
    assert [block.at.value for block in second] == places
    third = _with_results(arena, 100_000, 100_000, 20_000)
    for block in second + third:
        block.free()


def test_a_run_that_outgrows_its_results_goes_on_elsewhere(arena: Arena) -> None:
    """Only what was planned has a place in the run's pages."""
    run = arena.begin([20_000], [-1])
    blocks = [Block(size, number) for number, size in enumerate((20_000, 50_000, 300_000))]
    assert run.end() == (3, 0, MORE_ALLOCATIONS)
    for block in blocks:
        block.free()


@pytest.mark.skipif(sys.platform != "linux", reason="resident memory is read as Linux tells it")
def test_a_result_that_is_kept_keeps_no_other(arena: Arena) -> None:
    """Of a run's results one stays and the large ones go: so do their pages, once the next run needs some."""

    kept: list[Block] = []
    for _ in range(20):
        small, *large = _with_results(arena, 20_000, 4_000_000, 4_000_000)
        kept.append(small)
        for block in large:
            block.free()
    for block in kept[:-1]:
        assert _resident_pages(block, 8_000_000) <= 16
    for block in kept:
        block.free()


def _resident_pages(block: Block, n_bytes: int) -> int:
    """Return how many of the pages from a block on are resident."""
    assert block.at.value
    first = block.at.value // mmap.PAGESIZE * mmap.PAGESIZE
    pages = (ctypes.c_ubyte * (n_bytes // mmap.PAGESIZE))()
    length = ctypes.c_size_t(len(pages) * mmap.PAGESIZE)
    assert ctypes.CDLL(None).mincore(ctypes.c_void_p(first), length, pages) == 0
    return sum(state & 1 for state in pages)


def _drive(arenas: list[Arena], seed: int) -> None:
    """Run after run in some arena, with plans that hold, plans that overlap, other sizes and blocks that stay."""
    random = Random(seed)
    kept: list[Block] = []
    for _ in range(25):
        n = random.randint(1, 12)
        sizes = [random.choice((1, 64, 100, 5000, 300_000)) for _ in range(n)]
        offsets = [random.choice((-1, 64 * random.randrange(200))) for _ in range(n)]
        recorded = random.random() < 0.2
        run = random.choice(arenas).begin(None if recorded else sizes, offsets, 64 * random.randrange(400) + 64)
        live: list[Block] = []
        for size in sizes:
            live.append(Block(size if random.random() < 0.95 else size + 1, random.randrange(256)))
            while live and random.random() < 0.5:
                live.pop(random.randrange(len(live))).free()
        if random.random() < 0.5:
            kept += live
        else:
            for block in live:
                block.free()
        run.end()
        while len(kept) > 6:
            kept.pop(random.randrange(len(kept))).free()
    for block in kept:
        block.free()


@pytest.mark.parametrize("seed", range(12))
def test_no_block_is_anybody_elses_from_many_threads(seed: int) -> None:
    """Runs of four threads in two arenas, with random plans: every block keeps what was written into it."""
    before = LIBRARY.lowtide_live_bytes()
    arenas = [Arena(), Arena()]
    with ThreadPoolExecutor(4) as threads:
        for done in [threads.submit(_drive, arenas, 100 * seed + number) for number in range(4)]:
            done.result()
    assert [arena.live_blocks for arena in arenas] == [0, 0]
    for arena in arenas:
        arena.close()
    assert LIBRARY.lowtide_live_bytes() == before
