"""Parts of a graph that can be computed chunk by chunk, grown around a node."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from lowtide.frameworks.onnx.chunks.axes import axes_read
from lowtide.frameworks.onnx.chunks.values import MainValues


@dataclass(frozen=True, slots=True, eq=False)
class ChunkedRegion:
    """Nodes that run chunk by chunk, all on the same part of what they read and write."""

    nodes: Sequence[int]
    """Their places, in the order of the graph; what lies on a way between two of them is among them."""
    axes: dict[str, int]
    """By value that is cut, the axis along which."""
    sliced: Sequence[str]
    """What is read from outside chunk by chunk; no axis before its own has more than one element."""
    results: Sequence[str]
    """What is read outside, or returned; it is put together of chunks along an axis as those of `sliced`."""
    length: int
    """A number of chunks must divide this."""
    fixed_bytes: int
    """What is there from beginning to end, however many chunks there are."""
    inner_bytes: int
    """The most that is there beside it where there is one chunk."""

    def needed(self, chunks: int) -> int:
        """Return what the nodes need at once, in bytes."""
        return self.fixed_bytes + -(-self.inner_bytes // chunks)


@dataclass(slots=True)
class Growing:
    """A region in the making: nodes join where they agree with those that are there about the axes of values."""

    values: MainValues
    taken: frozenset[int]
    """Nodes of other regions."""
    nodes: set[int] = field(default_factory=set[int])
    axes: dict[str, int] = field(default_factory=dict[str, int])
    whole: set[str] = field(default_factory=set[str])
    """What nodes of the region read as a whole; nothing is read both ways."""
    tries: int = 0

    def join(self, place: int, axis: int | None = None) -> bool:
        """Add a node, cut along an axis of its results, by default any that agrees; return whether it joined."""
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
        """Take in what reads or writes values at the edge of more than `least` bytes, or that cannot be an edge."""
        refused: set[str] = set()
        while True:
            edge = [name for name in self._edge() if name not in refused and self._is_to_go(name, least)]
            if not edge:
                return
            for name in edge:
                writer = self.values.writer.get(name)
                inside = writer in self.nodes
                around = self.values.readers.get(name, []) if inside else [] if writer is None else [writer]
                joined = [self.join(place) for place in around if place not in self.nodes]
                if not joined or not all(joined):
                    refused.add(name)

    def _edge(self) -> Iterator[str]:
        yield from self.sliced()
        yield from self.results()

    def _is_to_go(self, name: str, least: int) -> bool:
        return self.values.bytes_of([name]) > least or not self._may_be_edge(name)

    def _may_be_edge(self, name: str) -> bool:
        shape = self.values.shape(name) or ()
        return math.prod(shape[: self.axes[name]]) == 1

    def sliced(self) -> list[str]:
        """Return what is read chunk by chunk and written elsewhere."""
        names = (name for place in sorted(self.nodes) for name in self.values.reads[place])
        return [
            name
            for name in dict.fromkeys(names)
            if name in self.axes and self.values.writer.get(name) not in self.nodes
        ]

    def results(self) -> list[str]:
        """Return what is written here and read elsewhere, or returned, or read by nobody."""
        names = (name for place in sorted(self.nodes) for name in self.values.nodes[place].output if name)
        return [name for name in names if self._is_needed_elsewhere(name)]

    def _is_needed_elsewhere(self, name: str) -> bool:
        readers = self.values.readers.get(name, ())
        return name in self.values.outputs or not readers or any(place not in self.nodes for place in readers)

    def close(self) -> bool:
        """Take in what lies between the nodes; return whether that was possible."""
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
        """Return the region, None where some value at its edge cannot be cut or two nodes cannot run in one go."""
        sliced, results = self.sliced(), self.results()
        if not self.close() or not sliced or not all(map(self._may_be_edge, (*sliced, *results))):
            return None
        sliced, results = self.sliced(), self.results()
        if not all(map(self._may_be_edge, (*sliced, *results))):
            return None
        values, nodes = self.values, sorted(self.nodes)
        lengths = [shape[self.axes[name]] for name in self.axes if (shape := values.shape(name)) is not None]
        read = {name for place in nodes for name in values.reads[place] if values.writer.get(name) not in self.nodes}
        # What is returned is copied once more: its storage has another shape until then.
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
    """Return the most bytes that nodes hold at once, in their order, without the buffers at the edge."""
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
