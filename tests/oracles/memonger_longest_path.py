"""memonger's longest-path order with the ties of the real one, on Python's own dictionaries, sets and queues.

That is topological_sort_traversal_longest_path of torch 1.11.0 with networkx 3, without either of them.
"""

from collections import deque
from heapq import heapify, heappop, heappush
from itertools import pairwise

from lowtide.engine.analysis import Problem
from tests.oracles.slow_view import SlowView


def memonger_longest_path(problem: Problem) -> list[int] | None:
    """Return the order, or None where the real one fails: its paths make no tree."""
    view = SlowView.of(problem)
    sources = [op for op in range(view.n_ops) if not view.predecessors[op]]
    starts = _leaves(view, [_path(view, source) for source in sources])
    if sorted(starts) != sources:
        return None
    listed = list(starts)
    for source in starts:
        listed += [op for op in _descendants(view, source) if op not in listed]
    return _last_listed_first(view, listed)


def _path(view: SlowView, source: int) -> list[int]:
    """Return the path that a queue of improved ops finds, by the first op that gave each its final length."""
    target = view.n_ops if sum(not after for after in view.successors) > 1 else -1
    length, given_by = {source: 0}, {source: list[int]()}
    queue = deque([source])
    while queue:
        op = queue.popleft()
        if any(giver in queue for giver in given_by[op]):
            continue
        for after in () if op == target else view.successors[op] or ([target] if target >= 0 else []):
            if length[op] + 1 > length.get(after, -1):
                if after not in queue:
                    queue.append(after)
                length[after] = length[op] + 1
                given_by[after] = [op]
            elif length[op] + 1 == length[after]:
                given_by[after].append(op)
    path = [max(length, key=lambda op: length[op])]
    while given_by[path[-1]]:
        path.append(given_by[path[-1]][0])
    return path[::-1]


def _leaves(view: SlowView, paths: list[list[int]]) -> list[int]:
    """Return the leaves of the merged paths, those below the lowest child first; some twice where they are no tree."""
    if not paths:
        return []
    children: dict[int, dict[int, None]] = {}
    for path in paths:
        for child, parent in pairwise(path):
            children.setdefault(parent, {})[child] = None

    def height(op: int) -> int:
        return 1 + max(map(height, children[op])) if op in children else 0

    def leaves(op: int) -> list[int]:
        return [leaf for child in sorted(children.get(op, ()), key=height) for leaf in leaves(child)] or [op]

    return leaves(paths[0][-1])


def _descendants(view: SlowView, source: int) -> set[int]:
    """Return the ops after a source; which of them are listed first is up to the hash set they are put into."""
    found, seen = [source], {source}
    for op in found:  # grows while it is walked
        for after in view.successors[op]:
            if after not in seen:
                seen.add(after)
                found.append(after)
    return {op for op in found if op != source}


def _last_listed_first(view: SlowView, listed: list[int]) -> list[int]:
    rank = {op: -place for place, op in enumerate(listed)}
    missing = [len(before) for before in view.predecessors]
    ready = [(rank[op], op) for op, count in enumerate(missing) if count == 0]
    heapify(ready)
    order: list[int] = []
    while ready:
        op = heappop(ready)[1]
        order.append(op)
        for after in view.successors[op]:
            missing[after] -= 1
            if missing[after] == 0:
                heappush(ready, (rank[after], after))
    return order
