"""Maximum flow in plain Python."""

from collections import deque

INFINITE = 2**63
MOST_WORK = 30_000_000
"""Limit on the edges examined by a flow."""


class TooMuchWorkError(Exception):
    """Raised if a flow exceeds `MOST_WORK`."""


class PlainMaxFlow:
    """Dinic's algorithm (1970) from node 0 to node 1. O(V^2 E).

    Raises TooMuchWorkError beyond the work limit.
    """

    SOURCE, SINK = 0, 1

    def __init__(self, n_nodes: int) -> None:
        self._edges_of: list[list[int]] = [[] for _ in range(n_nodes)]
        self._target: list[int] = []
        self._residual: list[int] = []
        self._work = 0

    def add_node(self) -> int:
        self._edges_of.append([])
        return len(self._edges_of) - 1

    def add_edge(self, start: int, end: int, capacity: int) -> None:
        self._spend(8)  # also limits memory
        for node, target, residual in ((start, end, capacity), (end, start, 0)):
            self._edges_of[node].append(len(self._target))
            self._target.append(target)
            self._residual.append(residual)

    def run(self) -> int:
        """Return a maximum flow's value; INFINITE or more without a finite cut."""
        total = 0
        while total < INFINITE:
            level = self._levels()
            if level[self.SINK] < 0:
                break
            next_edge = [0] * len(self._edges_of)
            while pushed := self._augment(level, next_edge):
                total += pushed
        return total

    def _spend(self, work: int) -> None:
        self._work += work
        if self._work > MOST_WORK:
            raise TooMuchWorkError

    def _levels(self) -> list[int]:
        level = [-1] * len(self._edges_of)
        level[self.SOURCE] = 0
        queue = deque([self.SOURCE])
        while queue:
            node = queue.popleft()
            self._spend(len(self._edges_of[node]))
            for edge in self._edges_of[node]:
                target = self._target[edge]
                if self._residual[edge] > 0 and level[target] < 0:
                    level[target] = level[node] + 1
                    queue.append(target)
        return level

    def _augment(self, level: list[int], next_edge: list[int]) -> int:
        path: list[int] = []
        node = self.SOURCE
        while node != self.SINK:
            edges = self._edges_of[node]
            while next_edge[node] < len(edges):
                edge = edges[next_edge[node]]
                if self._residual[edge] > 0 and level[self._target[edge]] == level[node] + 1:
                    path.append(edge)
                    node = self._target[edge]
                    break
                next_edge[node] += 1
            else:
                if not path:
                    return 0
                node = self._target[path.pop() ^ 1]
                next_edge[node] += 1
        self._spend(len(path))
        pushed = min(self._residual[edge] for edge in path)
        for edge in path:
            self._residual[edge] -= pushed
            self._residual[edge ^ 1] += pushed
        return pushed
