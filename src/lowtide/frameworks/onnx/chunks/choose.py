"""Choose regions and numbers of chunks."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from lowtide.frameworks.onnx.chunks.region import ChunkedRegion, Growing, order_in_one_go
from lowtide.frameworks.onnx.chunks.values import MainValues

_MOST_TRIES = 50_000
_TRIED_CHUNKS = 4
_LEAST_SAVED = 2**20
"""In bytes."""
_WORTH = 3 / 4
"""Largest share of the seed's need for a region."""
_SHARES = (2, 4, 8, 16, 64)


@dataclass(frozen=True, slots=True)
class Fineness:
    """Limits on cutting."""

    most_chunks: int
    enough: int
    """Divisor of the largest need at which a region is small enough."""


COARSE = Fineness(most_chunks=64, enough=8)
FINE = Fineness(most_chunks=1024, enough=1024)
"""For budgets that coarse chunks miss."""


@dataclass(frozen=True, slots=True)
class Chosen:
    """A region, and its preferred numbers of chunks."""

    region: ChunkedRegion
    chunks: Sequence[int]


def choose_regions(values: MainValues, fineness: Fineness = COARSE) -> list[Chosen]:
    """Return the regions to compute in chunks; empty unless they save 1 MiB.

    Regions grow around the neediest nodes in turn. Complexity: O(nodes) per attempt to add a node, at most 50,000
    attempts.
    """
    needed = {place: values.needed(place) for place in range(len(values.nodes))}
    before = max(needed.values(), default=0)
    regions: list[ChunkedRegion] = []
    search = _RegionSearch(values, fineness)
    while needed:
        seed = max(needed, key=lambda place: (needed[place], -place))
        if needed[seed] < max((_least(region, fineness) for region in regions), default=0):
            break
        taken = frozenset(place for region in regions for place in region.nodes)
        region = search.around(seed, needed[seed], taken)
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


class _RegionSearch:
    def __init__(self, values: MainValues, fineness: Fineness) -> None:
        self._values = values
        self._fineness = fineness
        self._tries = 0

    def around(self, seed: int, needed: int, taken: frozenset[int]) -> ChunkedRegion | None:
        found = self._regions(seed, needed, taken)
        return min(found, key=lambda region: (_least(region, self._fineness), len(region.nodes)), default=None)

    def _regions(self, seed: int, needed: int, taken: frozenset[int]) -> Iterator[ChunkedRegion]:
        name = next(filter(None, self._values.nodes[seed].output), "")
        for axis in range(len(self._values.shape(name) or ())):
            for share in _SHARES:
                if self._tries > _MOST_TRIES:
                    return
                growing = Growing(self._values, taken)
                if growing.join(seed, axis):
                    growing.grow(needed // share)
                    region = growing.finish()
                    if region is not None and _divisors(region, self._fineness):
                        yield region
                self._tries += growing.tries


def _divisors(region: ChunkedRegion, fineness: Fineness) -> list[int]:
    return [number for number in range(2, fineness.most_chunks + 1) if region.length % number == 0]


def _least(region: ChunkedRegion, fineness: Fineness) -> int:
    return region.needed(max(_divisors(region, fineness), default=1))


def _numbers_of_chunks(region: ChunkedRegion, room: int, fineness: Fineness) -> list[int]:
    """Return the fewest chunks that suffice, then fewer, then more."""
    divisors = _divisors(region, fineness)
    room = max(room, region.fixed_bytes + region.fixed_bytes // 8)
    best = next((number for number in divisors if region.needed(number) <= room), divisors[-1])
    fewer = [number for number in reversed(divisors) if number < best]
    more = [number for number in divisors if number > best]
    return [best, *fewer, *more][:_TRIED_CHUNKS]
