"""Regions of nodes, grown around one node."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter
from heapq import heappop, heappush

from lowtide.frameworks.onnx.chunks.axes import axes_read
from lowtide.frameworks.onnx.chunks.values import MainValues


@dataclass(frozen=True, slots=True, eq=False)
class ChunkedRegion:
    """A finished region."""

    nodes: Sequence[int]
    """In order, closed under paths between nodes."""
    axes: dict[str, int]
    """By value."""
    sliced: Sequence[str]
    """Values read from outside in chunks; earlier axes have size 1."""
    results: Sequence[str]
    """Values read outside or returned; earlier axes have size 1."""
    length: int
    """A multiple of every possible number of chunks."""
    fixed_bytes: int
    """Held throughout."""
    inner_bytes: int
    """Peak of other bytes with one chunk."""

    def needed(self, chunks: int) -> int:
        return self.fixed_bytes + -(-self.inner_bytes // chunks)


@dataclass(slots=True)
class Growing:
    """A region under construction. Nodes join if they agree about cut axes."""

    values: MainValues
    taken: frozenset[int]
    nodes: set[int] = field(default_factory=set[int])
    axes: dict[str, int] = field(default_factory=dict[str, int])
    whole: set[str] = field(default_factory=set[str])
    """Values that must not be cut."""
    tries: int = 0

    def join(self, place: int, axis: int | None = None) -> bool:
        """Add a node, cut along `axis` or any that fits."""
        if place in self.taken:
            return False
        shape = self.values.shape(next(filter(None, self.values.nodes[place].output), ""))
        tried = range(len(shape or ())) if axis is None else [axis]
        return any(self._join(place, each) for each in tried)

    def _join(self, place: int, axis: int) -> bool:
        self.tries += 1
        node = self.values.nodes[place]
        outputs = [name for name in node.output if name]
        shapes = [self.values.shape(name) for name in outputs]
        if any(shape is None or len(shape) <= axis or shape[axis] < 2 for shape in shapes):
            return False
        read = axes_read(node, axis, self.values)
        if read is None or len(read) != len(node.input):
            return False
        cut = dict.fromkeys(outputs, axis)
        whole = {name for name, own in zip(node.input, read, strict=True) if name and own is None}
        for name, own in zip(node.input, read, strict=True):
            if own is not None and cut.setdefault(name, own) != own:
                return False
        agrees = all(self.axes.get(name, own) == own for name, own in cut.items())
        apart = self.whole.isdisjoint(cut) and whole.isdisjoint(cut) and whole.isdisjoint(self.axes)
        connects = not self.nodes or not self.axes.keys().isdisjoint(cut)
        if not (agrees and apart and connects):
            return False
        self.nodes.add(place)
        self.axes |= cut
        self.whole |= whole
        return True

    def grow(self, least: int) -> None:
        """Add neighbors across edge values above `least` bytes or impossible as edge."""
        refused: set[str] = set()
        while True:
            edges = (*self.sliced(), *self.results())
            edge = [name for name in edges if name not in refused and self._is_to_go(name, least)]
            if not edge:
                return
            for name in edge:
                writer = self.values.writer.get(name)
                inside = writer in self.nodes
                around = self.values.readers.get(name, []) if inside else [] if writer is None else [writer]
                joined = [self.join(place) for place in around if place not in self.nodes]
                if not joined or not all(joined):
                    refused.add(name)

    def _is_to_go(self, name: str, least: int) -> bool:
        return self.values.bytes_of([name]) > least or not self._may_be_edge(name)

    def _may_be_edge(self, name: str) -> bool:
        shape = self.values.shape(name) or ()
        return math.prod(shape[: self.axes[name]]) == 1

    def sliced(self) -> list[str]:
        names = (name for place in sorted(self.nodes) for name in self.values.reads[place])
        return [
            name
            for name in dict.fromkeys(names)
            if name in self.axes and self.values.writer.get(name) not in self.nodes
        ]

    def results(self) -> list[str]:
        names = (name for place in sorted(self.nodes) for name in self.values.nodes[place].output if name)
        return [name for name in names if self._is_needed_elsewhere(name)]

    def _is_needed_elsewhere(self, name: str) -> bool:
        readers = self.values.readers.get(name, ())
        return name in self.values.outputs or not readers or not self.nodes.issuperset(readers)

    def close(self) -> bool:
        """Add nodes on paths between members."""
        while between := self._between():
            if not all(self.join(place) for place in between):
                return False
        return True

    def _between(self) -> list[int]:
        first, last = min(self.nodes), max(self.nodes)
        after: set[int] = set()
        for place in range(first, last + 1):
            writers = (self.values.writer.get(name) for name in self.values.reads[place])
            if any(writer in self.nodes or writer in after for writer in writers):
                after.add(place)
        before: set[int] = set()
        for place in range(last, first - 1, -1):
            names = (name for name in self.values.nodes[place].output if name)
            readers = (reader for name in names for reader in self.values.readers.get(name, ()))
            if any(reader in self.nodes or reader in before for reader in readers):
                before.add(place)
        return sorted((after & before) - self.nodes)

    def finish(self) -> ChunkedRegion | None:
        """Return the region, None if it cannot run as a unit."""
        sliced, results = self.sliced(), self.results()
        if not self.close() or not sliced or not all(map(self._may_be_edge, (*sliced, *results))):
            return None
        sliced, results = self.sliced(), self.results()
        if not all(map(self._may_be_edge, (*sliced, *results))):
            return None
        values, nodes = self.values, sorted(self.nodes)
        lengths = [shape[self.axes[name]] for name in self.axes if (shape := values.shape(name)) is not None]
        read = {name for place in nodes for name in values.reads[place] if values.writer.get(name) not in self.nodes}
        # Returned results are copied: until then their storage has another shape.
        returned = values.bytes_of([name for name in results if name in values.outputs])
        edge = {values.buffer_of(name) for name in (*read, *results)}
        return ChunkedRegion(
            nodes=nodes,
            axes=dict(self.axes),
            sliced=sliced,
            results=results,
            length=math.gcd(*lengths),
            fixed_bytes=values.bytes_of([*read, *results]) + returned,
            inner_bytes=_most_inside(values, nodes, edge),
        )


def _most_inside(values: MainValues, nodes: Sequence[int], edge: set[int]) -> int:
    """Return peak bytes, without edge buffers."""
    touched: list[set[int]] = []
    names_of: dict[int, str] = {}
    for place in nodes:
        names = [name for name in (*values.reads[place], *values.nodes[place].output) if name]
        found = {values.buffer_of(name): name for name in names}
        names_of |= found
        touched.append(set(found) - edge)
    last = {buffer: step for step, buffers in enumerate(touched) for buffer in buffers}
    live: set[int] = set()
    most = 0
    for step, buffers in enumerate(touched):
        live |= buffers
        most = max(most, values.bytes_of([names_of[buffer] for buffer in live]) + values.scratch(nodes[step]))
        live = {buffer for buffer in live if last[buffer] > step}
    return most


def order_in_one_go(values: MainValues, regions: Sequence[ChunkedRegion]) -> list[int | ChunkedRegion] | None:
    """Return node positions and regions in a valid order, None for cyclic regions. O((nodes + reads) log nodes)."""
    nodes = range(len(values.nodes))
    region_of = {place: region for region in regions for place in region.nodes}
    group_of = {place: region_of[place].nodes[0] if place in region_of else place for place in nodes}
    waits: dict[int, set[int]] = {group: set() for group in group_of.values()}
    for place in nodes:
        read = {group_of[values.writer[name]] for name in values.reads[place] if name in values.writer}
        waits[group_of[place]] |= read - {group_of[place]}
    sorter = TopologicalSorter(waits)
    try:
        sorter.prepare()
    except CycleError:
        return None
    ready = sorted(sorter.get_ready())
    order: list[int | ChunkedRegion] = []
    while ready:
        group = heappop(ready)
        order.append(region_of.get(group, group))
        sorter.done(group)
        for freed in sorter.get_ready():
            heappush(ready, freed)
    return order
