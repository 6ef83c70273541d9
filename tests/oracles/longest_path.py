"""memonger's source order, from its definition."""

from functools import cache
from itertools import pairwise

from lowtide.engine.analysis import Problem
from tests.oracles.slow_view import SlowView


class PathTree:
    """The sources' longest paths, merged to a tree below one target."""

    def __init__(self, problem: Problem) -> None:
        self.view = SlowView.of(problem)
        self.target = self.view.n_ops
        self.sources = [op for op in range(self.view.n_ops) if not self.view.predecessors[op]]
        self.children: dict[int, set[int]] = {}
        self.has_ties = False
        length = cache(lambda op: 1 + max(map(length, self._after(op))) if op != self.target else 0)
        for source in self.sources:
            steps = [source]
            while steps[-1] != self.target:
                longest = max(map(length, self._after(steps[-1])))
                choices = [other for other in self._after(steps[-1]) if length(other) == longest]
                self.has_ties |= len(choices) > 1
                steps.append(min(choices))
            for child, parent in pairwise(steps):
                self.children.setdefault(parent, set()).add(child)
        for siblings in self.children.values():
            self.has_ties |= len({self._height(child) for child in siblings}) < len(siblings)

    def leaves(self, op: int) -> list[int]:
        """The leaves below an op, those below its highest child first."""
        if op not in self.children:
            return [op]
        children = sorted(self.children[op], key=lambda child: (-self._height(child), child))
        return [leaf for child in children for leaf in self.leaves(child)]

    def _after(self, op: int) -> list[int]:
        return self.view.successors[op] or [self.target]

    def _height(self, op: int) -> int:
        return 1 + max(map(self._height, self.children[op])) if op in self.children else 0


def longest_path(problem: Problem) -> list[int]:
    """Return the order: after each source, in program order, what it makes possible."""
    tree = PathTree(problem)
    order: list[int] = []
    for source in tree.leaves(tree.target) if tree.sources else []:
        order.append(source)
        for op in range(tree.view.n_ops):
            possible = op not in tree.sources and all(before in order for before in tree.view.predecessors[op])
            if possible and op not in order:
                order.append(op)
    return order
