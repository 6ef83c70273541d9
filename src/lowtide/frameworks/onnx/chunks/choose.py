"""Which parts of a graph are worth computing in chunks, and in how many."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from lowtide.frameworks.onnx.chunks.order import order_in_one_go
from lowtide.frameworks.onnx.chunks.region import ChunkedRegion, Growing
from lowtide.frameworks.onnx.chunks.values import MainValues

_MOST_TRIES = 50_000
"""Of adding a node to a region, over all regions."""
_TRIED_CHUNKS = 4
"""So many numbers of chunks are tried for equal bits at most."""
_LEAST_SAVED = 2**20
"""Bytes; a Scan holds some for itself, and starts its body for every chunk."""
_WORTH = 3 / 4
"""A region in chunks needs at most so much of what its neediest node did."""
_SHARES = (2, 4, 8, 16, 64)
"""What is at the edge of a region may be such shares of what a node needs."""


@dataclass(frozen=True, slots=True)
class Fineness:
    """How far regions are cut: small products take longer."""

    most_chunks: int
    enough: int
    """A region is small enough that needs such a part of what the neediest node did, or as much as nodes outside."""


COARSE = Fineness(most_chunks=64, enough=8)
FINE = Fineness(most_chunks=1024, enough=1024)
"""For budgets that coarse chunks do not meet."""


@dataclass(frozen=True, slots=True)
class Chosen:
    """A region, and the numbers of chunks with which it does, best first."""

    region: ChunkedRegion
    chunks: Sequence[int]


def choose_regions(values: MainValues, fineness: Fineness = COARSE) -> list[Chosen]:
    """Return the regions to compute in chunks, those of the neediest nodes first; none where that lowers no peak.

    What counts is what a node needs for itself: all that it reads, writes and works in, weights apart. Around the
    neediest node a region grows until what is at its edge is small; then comes the neediest of the others, until one
    cannot be cut. Regions are cut into as few chunks as need no more than any node outside, or as is fine enough.
    Complexity: O(nodes) for each of at most 50,000 tries to add one to a region.
    """
    needed = {place: values.needed(place) for place in range(len(values.nodes))}
    before = max(needed.values(), default=0)
    regions: list[ChunkedRegion] = []
    tries = 0
    while needed:
        seed = max(needed, key=lambda place: (needed[place], -place))
        if needed[seed] < max((_least(region, fineness) for region in regions), default=0):
            break
        found = _AroundNodes(values, frozenset(place for region in regions for place in region.nodes), fineness, tries)
        region = found.around(seed, needed[seed])
        tries = found.tries
        if region is None or _least(region, fineness) > needed[seed] * _WORTH:
            break
        if order_in_one_go(values, [*regions, region]) is None:
            break
        regions.append(region)
        for place in region.nodes:
            needed.pop(place, None)
    outside = max(needed.values(), default=0)
    room = max(outside, before // fineness.enough)
    chosen = [Chosen(region, _numbers_of_chunks(region, room, fineness)) for region in regions]
    after = max([outside, *(each.region.needed(each.chunks[0]) for each in chosen)])
    return chosen if before - after >= _LEAST_SAVED else []


class _AroundNodes:
    """The search for the region around a node that needs least."""

    def __init__(self, values: MainValues, taken: frozenset[int], fineness: Fineness, tries: int) -> None:
        self.tries = tries
        self._fineness = fineness
        self._values = values
        self._taken = taken

    def around(self, seed: int, needed: int) -> ChunkedRegion | None:
        """Return the region around a node that needs least, the smallest of those; None where there is none."""
        found = list(self._regions(seed, needed))
        return min(found, key=lambda region: (_least(region, self._fineness), len(region.nodes)), default=None)

    def _regions(self, seed: int, needed: int) -> Iterator[ChunkedRegion]:
        name = next(filter(None, self._values.nodes[seed].output), "")
        for axis in range(len(self._values.shape(name) or ())):
            for share in _SHARES:
                if self.tries > _MOST_TRIES:
                    return
                growing = Growing(self._values, self._taken)
                if growing.join(seed, axis):
                    growing.grow(needed // share)
                    region = growing.finish()
                    if region is not None and _divisors(region, self._fineness):
                        yield region
                self.tries += growing.tries


def _divisors(region: ChunkedRegion, fineness: Fineness) -> list[int]:
    return [number for number in range(2, fineness.most_chunks + 1) if region.length % number == 0]


def _least(region: ChunkedRegion, fineness: Fineness) -> int:
    return region.needed(max(_divisors(region, fineness), default=1))


def _numbers_of_chunks(region: ChunkedRegion, room: int, fineness: Fineness) -> list[int]:
    """Return how many chunks to try: the fewest that need little enough, then fewer, then more."""
    divisors = _divisors(region, fineness)
    room = max(room, region.fixed_bytes + region.fixed_bytes // 8)
    best = next((number for number in divisors if region.needed(number) <= room), divisors[-1])
    fewer = [number for number in reversed(divisors) if number < best]
    more = [number for number in divisors if number > best]
    return [best, *fewer, *more][:_TRIED_CHUNKS]
