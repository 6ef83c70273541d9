"""The kernels of both passes as one graph."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from lowtide.core.index_spaces import BufferId, OpId
from lowtide.engine.costs import Device
from lowtide.engine.graph import Graph, GraphBuilder, Lifetime
from lowtide.engine.plan import CopyIn, Plan, Run
from lowtide.frameworks.torch.compile.kernels.recorded_pass import RecordedPass
from lowtide.frameworks.torch.reading.costs import price_of
from lowtide.frameworks.torch.reading.outlined import Work


@dataclass(frozen=True, slots=True, kw_only=True)
class BytesAround:
    """Memory around the kernels of a program."""

    inputs: int
    """Inputs that the caller keeps, except static ones."""
    persistent: int
    space: str = "device"


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldBytes(BytesAround):
    """Memory around the kernels of both passes."""

    tangents: int
    results: Collection[str]
    """FX names of the forward pass's own results."""
    turn: str


@dataclass(frozen=True, slots=True, eq=False)
class KernelProgram:
    """The kernels of both passes, with the turn between."""

    graph: Graph
    forward: RecordedPass
    backward: RecordedPass
    turn: OpId
    forward_buffers: Mapping[str, BufferId]
    """By Inductor's name."""
    forward_kernels: Sequence[OpId]
    backward_kernels: Sequence[OpId]
    work: Sequence[Sequence[Work]]
    """The work of each op when recomputed."""
    forward_nodes: Collection[str]
    may_chunk: bool = False

    def graph_with(self, others: int) -> Graph:
        """Return the graph with bytes reserved for other graphs."""
        scratch = self.graph.scratch.copy()
        scratch[self.turn] = others
        return replace(self.graph, scratch=scratch)

    def seconds_on(self, device: Device) -> list[float]:
        """Return the estimated seconds of every op when recomputed."""
        return [sum(device.seconds(*each) for each in work) for work in self.work]

    @property
    def base_cost(self) -> float:
        device_name = self.graph.spaces[0].name
        return sum(_price(work, device_name) for one in (self.forward, self.backward) for work in one.work)

    def kernel_of(self, op: OpId) -> tuple[RecordedPass, OpId]:
        if op < self.turn:
            return self.forward, self.forward_kernels[op]
        return self.backward, self.backward_kernels[op - self.turn - 1]

    def saved_bytes(self, plan: Plan) -> int:
        graph, made_again, saved = self.graph, set[BufferId](), set[BufferId]()
        has_turned = False
        for step in plan.steps():
            if isinstance(step, CopyIn):
                made_again.add(step.buffer)
            elif isinstance(step, Run) and has_turned:
                saved.update(buffer for buffer in graph.reads[step.op].tolist() if buffer not in made_again)
                made_again.update(graph.writes[step.op].tolist())
            elif isinstance(step, Run):
                has_turned = step.op == self.turn
        return sum(int(graph.sizes[buffer]) for buffer in saved)


def _price(work: Iterable[Work], device_name: str) -> float:
    return sum(price_of(each, device_name) for each in work)


def join_passes(
    name: str,
    forward: RecordedPass,
    backward: RecordedPass,
    held: HeldBytes,
    forward_nodes: Collection[str],
    *,
    by_value: bool = False,
) -> KernelProgram:
    """Return both passes as one graph.

    With `by_value`, forward kernels with several results are several ops, recomputed separately.
    """
    joining = _Joining.beside(held, name)
    builder = joining.builder
    storages = {value: storage.name for value, storage in forward.storages.items()}
    results = {storages[value] for value in held.results if value in storages}
    own: dict[str, BufferId] = {}
    for buffer, size, lifetime in _buffers(forward.graph):
        is_saved = lifetime is Lifetime.OUTPUT and buffer not in results
        own[buffer] = joining.add_buffer(forward, buffer, size, Lifetime.INTERMEDIATE if is_saved else lifetime)
    named = {name for name, value in forward.values.items() if value in forward_nodes} | set(storages.values())
    forward_kernels = joining.add_kernels(forward, own, named if by_value else ())
    turn = joining.add_turn(held, [own[buffer] for buffer in sorted(results) if buffer in own])
    later: dict[str, BufferId] = {}
    for buffer, size, lifetime in _buffers(backward.graph):
        if storages.get(buffer) in own:
            later[buffer] = own[storages[buffer]]
        elif lifetime in (Lifetime.DONATED, Lifetime.INPUT):
            later[buffer] = builder.add_buffer(joining.unique(buffer), 0, Lifetime.PERSISTENT)  # counted above
        else:
            later[buffer] = joining.add_buffer(backward, buffer, size, lifetime)
    backward_kernels = joining.add_kernels(backward, later)
    return KernelProgram(
        builder.build(), forward, backward, turn, own, forward_kernels, backward_kernels, joining.work, forward_nodes
    )


def graph_of_pass(name: str, one: RecordedPass, held: BytesAround) -> Graph:
    """Return the kernels of a program without a backward pass."""
    joining = _Joining.beside(held, name)
    own = {buffer: joining.add_buffer(one, buffer, size, lifetime) for buffer, size, lifetime in _buffers(one.graph)}
    joining.add_kernels(one, own)
    return joining.builder.build()


def _buffers(graph: Graph) -> list[tuple[str, int, Lifetime]]:
    lifetimes = map(Lifetime, graph.lifetimes.tolist())
    return list(zip(graph.buffer_names, graph.sizes.tolist(), lifetimes, strict=True))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Part:
    """A part of a kernel, with buffers of the kernel's own graph."""

    reads: Sequence[BufferId]
    writes: Sequence[BufferId]
    work: Sequence[Work] = ()
    is_once: bool = False
    """Whether it is ordered and never recomputed."""


def _parts(one: RecordedPass, kernel: OpId) -> list[_Part]:
    graph, work = one.graph, one.work[kernel]
    reads, writes = graph.reads[kernel].tolist(), graph.writes[kernel].tolist()
    once = [buffer for buffer in writes if graph.buffer_names[buffer] in one.run_once[kernel]]
    rest = [buffer for buffer in writes if buffer not in once]
    if not once and not one.overwrites[kernel]:
        return [_Part(reads=reads, writes=rest, work=work)]
    if not rest:
        return [_Part(reads=reads, writes=once, work=work, is_once=True)]
    return [_Part(reads=reads, writes=once, is_once=True), _Part(reads=[*reads, *once], writes=rest, work=work)]


def _parts_by_value(one: RecordedPass, kernel: OpId, named: Collection[str]) -> list[_Part]:
    """Return one op per value, and one that keeps all of them alive; empty if the kernel cannot be divided."""
    graph, sources = one.graph, one.sources[kernel]
    is_whole = one.calls[kernel] or one.overwrites[kernel] or one.is_part[kernel]
    if is_whole or not sources or not all(name in named for name in sources):
        return []
    ids = {str(graph.buffer_names[buffer]): buffer for buffer in (*graph.reads[kernel], *graph.writes[kernel])}
    parts: list[_Part] = []
    known = set[BufferId]()
    for name, read in sources.items():
        reads = sorted(int(ids[each]) for each in read)
        known.add(ids[name])
        moved = int(graph.sizes[ids[name]]) + sum(int(graph.sizes[each]) for each in reads if each not in known)
        known.update(reads)
        is_once = name in one.run_once[kernel]
        work = () if is_once else [Work(moved)]
        parts.append(_Part(reads=reads, writes=[int(ids[name])], work=work, is_once=is_once))
    place_of = {buffer: place for place, part in enumerate(parts) for buffer in part.writes}
    taken = set[BufferId]()
    for given, made in graph.in_place_pairs(kernel):
        place = place_of.get(made)
        if place is not None and given in parts[place].reads:
            taken.add(given)
            if any(given in part.reads for part in parts[place + 1 :]):
                return []
    alive = [each for each in (*graph.reads[kernel].tolist(), *place_of) if each not in taken]
    rest = [each for each in graph.writes[kernel].tolist() if each not in place_of]
    return [*parts, _Part(reads=alive, writes=rest, is_once=True)]


class _Joining:
    """A graph in which kernels get names of FX values."""

    def __init__(self, builder: GraphBuilder, device_name: str) -> None:
        self.builder = builder
        self._device_name = device_name
        self._is_backward = False
        """Backward kernels run once: plans become copies of forward nodes."""
        self.work: list[Sequence[Work]] = []
        self._counts: dict[str, Counter[str]] = {"op": Counter(), "buffer": Counter()}

    @classmethod
    def beside(cls, held: BytesAround, name: str) -> "_Joining":
        builder = GraphBuilder(name)
        builder.add_space(held.space)
        if held.inputs:
            builder.add_buffer("inputs", held.inputs, Lifetime.INPUT)
        if held.persistent:
            builder.add_buffer("parameters", held.persistent, Lifetime.PERSISTENT)
        return cls(builder, held.space)

    def unique(self, name: str, of: Literal["op", "buffer"] = "buffer") -> str:
        self._counts[of][name] += 1
        number = self._counts[of][name]
        return name if number == 1 else f"{name}#{number}"

    def add_buffer(self, one: RecordedPass, name: str, size: int, lifetime: Lifetime) -> BufferId:
        return self.builder.add_buffer(self.unique(one.values.get(name, name)), size, lifetime)

    def add_turn(self, held: HeldBytes, results: Sequence[BufferId]) -> OpId:
        """Add the end of the forward pass, which returns the tangents. Autograd holds them until the end."""
        self._is_backward = True
        tangents = self.builder.add_buffer(self.unique("tangents"), held.tangents, Lifetime.OUTPUT)
        name = self.unique(held.turn, "op")
        self.work.append(())
        return self.builder.add_op(name, "turn", reads=results, writes=[tangents], pure=False, cost=0.0)

    def add_kernels(
        self, one: RecordedPass, buffers: Mapping[str, BufferId], named: Collection[str] = ()
    ) -> list[OpId]:
        """Add the kernels of a pass, and return each op's kernel.

        Kernels whose buffers are `named` are one op per buffer, if possible.
        """
        graph, last, kernels = one.graph, list[OpId](), list[OpId]()
        ids = [buffers[name] for name in graph.buffer_names]
        for kernel in range(graph.n_ops):
            parts = _parts_by_value(one, kernel, named) or _parts(one, kernel)
            added = [self._add_op(one, kernel, ids, part, last) for part in parts]
            kernels += [kernel] * len(added)
            last.append(added[-1])
        return kernels

    def _add_op(
        self, one: RecordedPass, kernel: OpId, ids: Sequence[BufferId], part: _Part, last: Sequence[OpId]
    ) -> OpId:
        graph, writes = one.graph, part.writes
        before: list[OpId] = graph.after[kernel].tolist()
        own = {ids[buffer] for buffer in writes}
        pairs = [
            (given, made) for given, made in graph.in_place_pairs(kernel) if given in part.reads and made in writes
        ]
        name = next((graph.buffer_names[buffer] for buffer in writes), graph.op_names[kernel])
        read = dict.fromkeys(ids[each] for each in part.reads)
        self.work.append(part.work)
        return self.builder.add_op(
            self.unique(one.values.get(name, name), "op"),
            one.kinds[kernel],
            reads=[buffer for buffer in read if buffer not in own],
            writes=[ids[buffer] for buffer in writes],
            after=[last[op] for op in before],
            in_place=[(ids[given], ids[made]) for given, made in pairs if ids[given] != ids[made]],
            scratch_bytes=int(graph.scratch[kernel]),
            pure=not (self._is_backward or part.is_once or one.is_part[kernel]),
            ordered=part.is_once,
            cost=_price(part.work, self._device_name),
            flops=sum(each.flops for each in part.work),
            traffic_bytes=sum(each.traffic_bytes for each in part.work),
        )
