"""x."""

from dataclasses import dataclass, replace

import numpy as np

from lowtide import _native
from lowtide.core.index_spaces import BufferId, OpId
from lowtide.engine.analysis import Problem
from lowtide.engine.analysis.problem import Order
from lowtide.engine.graph import Graph
from lowtide.engine.graph.rows import Rows
from lowtide.engine.schedule.scheduler import Given, best_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Lpmf:
    """Run next the ready op that raises the peak so far least, then the one that leaves the fewest bytes live.

    Ready ops are compared by three figures in turn: the bytes an op allocates if they would raise the peak so far, else
    0; the bytes it allocates minus the bytes it frees; program order. The peak so far starts at the donated inputs or
    the outputs, whichever are more. If `threshold_bytes` is positive and every ready op allocates more, the op whose
    first successor stands earliest in the program runs instead; ties go to the op that became ready first.

    Source: PyTorch Inductor, memory.py, topological_sort_lpmf, after "Buffer memory optimization for video codec
    application modeled in Simulink" (DAC 2006). The original scans all ready ops in every step; here a tournament tree
    over the ops sorted by size answers in O(log n).
    Complexity: O((n + e) log n). Guarantees: none on the peak.
    """

    threshold_bytes: int = 0
    """Inductor's size_threshold_for_succ_based_strategy; 0 switches the successor rule off."""

    def order(self, problem: Problem) -> Order:
        """Return the order."""
        return _native.lpmf(problem.native, self.threshold_bytes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bfs:
    """Run next the ready op whose predecessors ran earliest.

    Compares the sorted places of the predecessors in the order so far, lexicographically; ties go to program order. Who
    reads an element of a result comes after the op that hands it on; see `view_by_elements`.

    Source: PyTorch Inductor, memory.py, topological_sort_bfs.
    Complexity: O((n + e) log n). Guarantees: none on the peak.
    """

    def order(self, problem: Problem) -> Order:
        """Return the order."""
        return _native.bfs(view_by_elements(problem))


@dataclass(frozen=True, slots=True, kw_only=True)
class Dfs:
    """Visit the ops by rising bytes read and written; before each, visit what it depends on, in the same order.

    Bytes read leave out persistent and kept inputs; ties go to program order. An op that hands on an element of a
    result reads no bytes; see `view_by_elements`.

    Source: PyTorch Inductor, memory.py, topological_sort_dfs (recursive there, here with a stack of its own).
    Complexity: O(n log n + e). Guarantees: none on the peak.
    """

    def order(self, problem: Problem) -> Order:
        """Return the order."""
        return _native.dfs(view_by_elements(problem))


@dataclass(frozen=True, slots=True, kw_only=True)
class InductorBest:
    """Take the least peak of the given order, LPMF, breadth-first and depth-first; the earlier one wins a tie.

    Source: PyTorch Inductor, memory.py, reorder_for_peak_memory. Mended: at first its estimate freed the
    graph's outputs before the first step; here, as in its later versions, they stay to the end.
    Complexity: O((n + e) log n). Guarantees: never worse than the given order.
    """

    def order(self, problem: Problem) -> Order:
        """Return the order."""
        return best_of(problem, (Given(), Lpmf(), Bfs(), Dfs()))


def view_by_elements(problem: Problem) -> _native.GraphView:
    """Return what kernels see of a graph, with elements of results in the place of what the results allocate.

    An op hands on a buffer if it reads it, writes nothing, and control edges lead to it from the buffer's producer,
    over nothing but results in results, and from it to all other readers. In Inductor's terms that op is a MultiOutput
    node: who reads the element waits for that node and not for the producer, and the node itself reads no bytes.
    Complexity: O(n + e), and the degrees of producer and reader for every use of an element.
    """
    handed = _handed_on(problem.graph)
    if not handed:
        return problem.native
    graph, structure = problem.graph, problem.graph.structure
    touches = [[b for b in row if handed.get(b) != op] for op, row in enumerate(structure.touches)]
    before: list[set[OpId]] = [set(row) for row in structure.predecessors]
    changed = [{*written, *mutated} for written, mutated in zip(graph.writes, graph.mutates, strict=True)]
    users, touched = list(structure.users), list(structure.touches)
    for buffer in handed:
        producer = int(structure.producers[buffer])
        for op in users[buffer]:
            shared = {*touched[producer], *changed[producer]} & {*touches[op], *changed[op]}
            otherwise = (shared & (changed[producer] | changed[op])) - handed.keys()
            in_line = graph.ordered[op] and graph.ordered[producer]
            if not otherwise and not in_line and producer not in graph.after[op]:
                before[op].discard(producer)
    successors: list[list[OpId]] = [[] for _ in before]
    for op, row in enumerate(before):
        for earlier in sorted(row):
            successors[earlier].append(op)
    seen_by_inductor = replace(
        structure,
        touches=Rows.from_lists(touches),
        predecessors=Rows.from_lists([sorted(row) for row in before]),
        successors=Rows.from_lists(successors),
    )
    return _native.GraphView(graph, seen_by_inductor, np.ravel(problem.transient), len(graph.spaces))


def _handed_on(graph: Graph) -> dict[BufferId, OpId]:
    """Return the buffers that an op hands on as elements of a result, with that op."""
    writes_nothing = (np.diff(graph.writes.offsets) == 0) & (np.diff(graph.mutates.offsets) == 0) & ~graph.ordered
    producers, users = graph.structure.producers, graph.structure.users
    found: dict[BufferId, OpId] = {}
    for op in np.flatnonzero(writes_nothing).tolist():
        for buffer in graph.reads[op].tolist():
            others = (user for user in users[buffer].tolist() if user != op)
            if _is_handed_over(graph, int(producers[buffer]), op) and all(op in graph.after[user] for user in others):
                found[buffer] = op
    return found


def _is_handed_over(graph: Graph, producer: OpId, op: OpId) -> bool:
    """Whether control edges lead from one op to another over ops that touch nothing; -1 is no op."""
    waiting, seen = [op], {op}
    while waiting:
        for earlier in graph.after[waiting.pop()].tolist():
            if earlier == producer:
                return True
            if earlier not in seen and not len(graph.structure.touches[earlier]) and not len(graph.writes[earlier]):
                seen.add(earlier)
                waiting.append(earlier)
    return False
