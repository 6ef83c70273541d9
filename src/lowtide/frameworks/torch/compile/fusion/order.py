"""The order of Inductor's kernels after fusion, and their functions on the CPU."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from lowtide.core.index_spaces import BufferId
from lowtide.engine.graph import Graph
from lowtide.engine.planning.find_plan import find_plan
from lowtide.engine.planning.settings import PlanSettings
from lowtide.frameworks.torch.compile.fusion.fused_peaks import FusedPeaks
from lowtide.frameworks.torch.compile.fusion.kernel_graph import NO_KNOWN_INPUTS, KnownInputs, graph_of_kernels
from lowtide.frameworks.torch.internals.inductor import SchedulerPass
from lowtide.frameworks.torch.internals.kernels import (
    KernelNode,
    KernelStorage,
    becomes_cpp,
    end_cpu_functions_after,
    has_code,
    input_names,
    unpacked_tuple,
)
from lowtide.frameworks.torch.planning.options import Options, identity

Record = Callable[[Sequence[KernelNode], KnownInputs, Mapping[str, KernelStorage], int], None]


class MemoryOrder(SchedulerPass):
    """A scheduler pass, to run last, that lowers the peak; never worse than the given order."""

    def __init__(self, options: Options, peaks: FusedPeaks, record: Record | None = None) -> None:
        self._options = options
        self._peaks = peaks
        self._record = record

    @property
    def key(self) -> str:
        return f"{identity(self._options)} {self._peaks.identity}"

    def __call__(self, nodes: Sequence[KernelNode]) -> list[KernelNode]:
        if not nodes:
            return []
        given = self._peaks.known_inputs(input_names())
        keeps_order = self._peaks.keeps_order(input_names())
        ordered = list(nodes) if keeps_order else in_order_of_lowest_peak(nodes, self._options, given)
        functions = CpuFunctions.of(ordered, self._peaks.kernel_budget(input_names()), given)
        functions.end_where_full()
        storages = self._peaks.record_outputs(input_names())
        if self._record is not None:
            self._record(ordered, given, storages, functions.peak_bytes)
        self._peaks.check(input_names(), functions.peak_bytes)
        return ordered


def in_order_of_lowest_peak(
    nodes: Sequence[KernelNode], options: Options, given: KnownInputs = NO_KNOWN_INPUTS
) -> list[KernelNode]:
    """Return the order with the lowest peak found. Collectives and side effects keep their order."""
    techniques = frozenset({"share"}) | (options.techniques & {"reorder"})
    settings = PlanSettings(techniques=techniques, effort=options.effort, addresses=False)
    order = find_plan(graph_of_kernels(nodes, given), settings).plan.order()
    return _with_tuples_unpacked_early([nodes[place] for place in order.tolist()])


def _with_tuples_unpacked_early(nodes: Sequence[KernelNode]) -> list[KernelNode]:
    """Unpack tuples early: a tuple keeps all its results alive."""
    made = {name: node for node in nodes for name in node.get_buffer_names()}
    parts: dict[KernelNode, list[KernelNode]] = {}
    for node in nodes:
        source = unpacked_tuple(node)
        if source is not None:
            parts.setdefault(made[source], []).append(node)
    return [each for node in nodes if unpacked_tuple(node) is None for each in _unpacked(node, parts)]


def _unpacked(node: KernelNode, parts: dict[KernelNode, list[KernelNode]]) -> list[KernelNode]:
    return [node, *(each for part in parts.get(node, ()) for each in _unpacked(part, parts))]


@dataclass(frozen=True)
class CpuFunctions:
    """The functions that kernels become; GPU kernels stay single.

    On the CPU, Inductor merges all kernels between two calls of PyTorch's own into one function, which allocates all
    results at its start and frees arguments after its end.
    """

    peak_bytes: int
    last_kernels: tuple[KernelNode, ...]
    """Kernels that end a function to stay within the limit."""

    @classmethod
    def of(
        cls, nodes: Sequence[KernelNode], most_bytes: int | None, given: KnownInputs = NO_KNOWN_INPUTS
    ) -> "CpuFunctions":
        """Fill functions as Inductor does, but with at most `most_bytes`."""
        graph = graph_of_kernels(nodes, given)
        before, made, after = _memory(graph)
        peak, last = 0, list[KernelNode]()
        held = 0
        latest: KernelNode = None
        for place, node in enumerate(nodes):
            alone = int(before[place] + made[place] + graph.scratch[place])
            joined = held + int(made[place])
            if held and becomes_cpp(node):
                if most_bytes is None or joined <= most_bytes or joined <= alone:
                    alone = joined
                else:
                    last.append(latest)
            peak = max(peak, alone)
            held = alone if becomes_cpp(node) else 0
            latest = node if has_code(node) else latest
        return cls(max([peak, *map(int, after)]), tuple(last))

    def end_where_full(self) -> None:
        if self.last_kernels:
            end_cpu_functions_after(self.last_kernels)


def _memory(graph: Graph) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Return per op the bytes alive before, allocated, and alive after."""
    structure = graph.structure
    taken_over = _reused_storage(graph)
    passed_on = set(taken_over.values())
    made, freed = np.zeros(graph.n_ops, np.int64), np.zeros(graph.n_ops, np.int64)
    start = 0
    for buffer in range(graph.n_buffers):
        size = int(graph.sizes[buffer])
        producer, users = int(structure.producers[buffer]), structure.users[buffer]
        if producer < 0:
            start += size
        elif buffer not in taken_over:
            made[producer] += size
        last = max([producer, *users.tolist()])
        if last >= 0 and buffer not in passed_on and graph.freeable[buffer]:
            freed[last] += size
    after = start + np.cumsum(made - freed)
    return np.concatenate([[start], after[:-1]]), made, after


def _reused_storage(graph: Graph) -> dict[BufferId, BufferId]:
    found: dict[BufferId, BufferId] = {}
    for op in range(graph.n_ops):
        pairs = graph.in_place[op].tolist()
        for given, made in zip(pairs[::2], pairs[1::2], strict=True):
            last = max([int(graph.structure.producers[given]), *graph.structure.users[given].tolist()])
            if last == op and graph.freeable[given]:
                found[made] = given
    return found
