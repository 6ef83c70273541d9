"""XLA's depth-first orders, recursively."""

from collections.abc import Callable, Iterable

from lowtide.engine.analysis import Problem
from tests.oracles.slow_view import SlowView


def xla_postorder(problem: Problem) -> list[int]:
    """Return the plain post-order."""
    view = SlowView.of(problem)

    def children(op: int) -> list[int]:
        operands = view.operands(op)
        return [other for other in view.predecessors[op] if other not in operands] + operands

    return _visit((op for op in range(view.n_ops) if not view.successors[op]), children)


def xla_dfs(problem: Problem) -> list[int]:
    """Return the post-order by extra users, sizes and names."""
    view = SlowView.of(problem)
    extra_users: dict[int, int] = {}
    total_sizes: dict[int, int] = {}
    seen_bytes = 0
    for op in xla_postorder(problem):
        operands = {view.producers[buffer] for buffer in view.touches[op]} - {-1}
        seen_bytes += view.defined(op)
        extra = max(view.n_users(op) - 1, 0) + sum(extra_users[operand] for operand in operands)
        total = view.defined(op) + sum(total_sizes[operand] for operand in operands)
        extra_users[op] = min(extra, view.n_ops)
        total_sizes[op] = min(total, seen_bytes)

    def key(op: int) -> tuple[int, int, str]:
        return -extra_users[op], -total_sizes[op], view.names[op]

    sinks = (op for op in range(view.n_ops) if not view.successors[op])
    return _visit(sorted(sinks, key=key), lambda op: sorted(view.predecessors[op], key=key))


def _visit(starts: Iterable[int], children: Callable[[int], list[int]]) -> list[int]:
    order: list[int] = []

    def visit(op: int) -> None:
        if op not in order:
            for child in children(op):
                visit(child)
            order.append(op)

    for start in starts:
        visit(start)
    return order
