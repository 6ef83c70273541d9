"""An order of nodes in which regions run in one go."""

from collections.abc import Sequence
from heapq import heapify, heappop, heappush

from lowtide.frameworks.onnx.chunks.region import ChunkedRegion
from lowtide.frameworks.onnx.chunks.values import MainValues


def order_in_one_go(values: MainValues, regions: Sequence[ChunkedRegion]) -> list[int | ChunkedRegion] | None:
    """Return nodes by their places, and regions in place of theirs, all behind what they read.

    None where regions read one another's results in a circle. Complexity: O((nodes + reads) log nodes).
    """
    nodes = range(len(values.nodes))
    region_of = {place: region for region in regions for place in region.nodes}
    group_of = {place: region_of[place].nodes[0] if place in region_of else place for place in nodes}
    waits: dict[int, set[int]] = {group: set() for group in group_of.values()}
    for place in nodes:
        read = {group_of[values.writer[name]] for name in values.reads[place] if name in values.writer}
        waits[group_of[place]] |= read - {group_of[place]}
    readers: dict[int, list[int]] = {}
    for group, others in waits.items():
        for other in others:
            readers.setdefault(other, []).append(group)
    left = {group: len(others) for group, others in waits.items()}
    ready = [group for group, count in left.items() if not count]
    heapify(ready)
    order: list[int | ChunkedRegion] = []
    while ready:
        group = heappop(ready)
        order.append(region_of.get(group, group))
        for reader in readers.get(group, ()):
            left[reader] -= 1
            if not left[reader]:
                heappush(ready, reader)
    return order if len(order) == len(left) else None
