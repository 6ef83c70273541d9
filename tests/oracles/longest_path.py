"""memonger's source order, from its definition."""

from functools import cache
from itertools import pairwise

from lowtide.analysis import Problem
from tests.oracles.slow_view import SlowView


def sources_in_order(problem: Problem) -> list[int]:
    """Return the sources as they start: longest merged path first."""
    view = SlowView.of(problem)
    target = view.n_ops

    @cache
    def length(op: int) -> int:
        return 0 if op == target else 1 + max(length(other) for other in view.successors[op] or [target])

    def path(op: int) -> list[int]:
        steps = [op]
        while steps[-1] != target:
            steps.append(max(view.successors[steps[-1]] or [target], key=lambda other: (length(other), -other)))
        return steps

    sources = [op for op in range(view.n_ops) if not view.predecessors[op]]
    children: dict[int, set[int]] = {}
    for source in sources:
        steps = path(source)
        for child, parent in pairwise(steps):
            children.setdefault(parent, set()).add(child)

    @cache
    def height(op: int) -> int:
        return 1 + max(height(child) for child in children[op]) if op in children else 0

    def leaves(op: int) -> list[int]:
        if op not in children:
            return [op]
        return [leaf for child in sorted(children[op], key=lambda c: (-height(c), c)) for leaf in leaves(child)]

    return leaves(target) if sources else []


def longest_path(problem: Problem) -> list[int]:
    """Return the order: after each source, in program order, what it makes possible."""
    view = SlowView.of(problem)
    order: list[int] = []
    started: set[int] = set()
    sources = sources_in_order(problem)
    for source in sources:
        started.add(source)
        for op in range(view.n_ops):
            possible = op in started if op in sources else all(p in order for p in view.predecessors[op])
            if op not in order and possible:
                order.append(op)
    return order
