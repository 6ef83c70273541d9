"""Inductor's schedulers."""

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
    """Run next the ready op that raises the current peak least, then the op that leaves the fewest bytes live.

    Ready ops are compared by the bytes they allocate if these would raise the current peak, else 0; then by bytes
    allocated minus bytes freed; then by program order. The peak starts at the larger of donated inputs and outputs. If
    `threshold_bytes` is positive and every ready op allocates more, the op with the earliest first successor runs
    instead; ties go to the op that became ready first.

    Source: PyTorch Inductor, memory.py, topological_sort_lpmf, after "Buffer memory optimization for video codec
    application modeled in Simulink" (DAC 2006), with a tournament tree in place of the scan. Complexity: O((n + e) log
    n). Guarantees: none on the peak.
    """

    threshold_bytes: int = 0
    """Inductor's size_threshold_for_succ_based_strategy; 0 disables the successor rule."""

    def order(self, problem: Problem) -> Order:
        return _native.lpmf(problem.native, self.threshold_bytes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bfs:
    """Run next the ready op with the earliest predecessors.

    Compares their sorted places; ties go to program order. See `view_by_elements`.

    Source: PyTorch Inductor, memory.py, topological_sort_bfs. Complexity: O((n + e) log n). Guarantees: none on the
    peak.
    """

    def order(self, problem: Problem) -> Order:
        return _native.bfs(view_by_elements(problem))


@dataclass(frozen=True, slots=True, kw_only=True)
class Dfs:
    """Visit ops by rising bytes read and written; before each op, visit its predecessors in the same order.

    Bytes read exclude persistent and kept inputs; ties go to program order. See `view_by_elements`.

    Source: PyTorch Inductor, memory.py, topological_sort_dfs, without its recursion. Complexity: O(n log n + e).
    Guarantees: none on the peak.
    """

    def order(self, problem: Problem) -> Order:
        return _native.dfs(view_by_elements(problem))


@dataclass(frozen=True, slots=True, kw_only=True)
class InductorBest:
    """Take the least peak of program order, LPMF, breadth-first and depth-first; the earlier one wins a tie.

    Source: PyTorch Inductor, memory.py, reorder_for_peak_memory. Mended: outputs stay to the end, as in later versions.
    Complexity: O((n + e) log n). Guarantees: never worse than program order.
    """

    def order(self, problem: Problem) -> Order:
        return best_of(problem, (Given(), Lpmf(), Bfs(), Dfs()))


def view_by_elements(problem: Problem) -> _native.GraphView:
    """Return the kernels' view of a graph in which ops replace the elements of results that they return.

    An op returns a buffer if it reads the buffer, writes nothing, and control edges lead to it from the buffer's
    producer, only through nested results, and from it to all other readers: a MultiOutput node of Inductor, which reads
    no bytes. Complexity: O(n + e), and two degrees for every use of an element.
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
    waiting, seen = [op], {op}
    while waiting:
        for earlier in graph.after[waiting.pop()].tolist():
            if earlier == producer:
                return True
            if earlier not in seen and not len(graph.structure.touches[earlier]) and not len(graph.writes[earlier]):
                seen.add(earlier)
                waiting.append(earlier)
    return False
