"""XLA's list rule over a plain list of queued ops, newest last."""

from lowtide.engine.analysis import Problem
from lowtide.engine.graph import Lifetime
from tests.oracles.slow_view import SlowView


def xla_list(problem: Problem) -> list[int]:
    """Return the order."""
    view = SlowView.of(problem)
    has_run: set[int] = set()

    def uses_left(buffer: int) -> int:
        after_the_end = view.lifetimes[buffer] == Lifetime.OUTPUT
        return sum(user not in has_run for user in view.users[buffer]) + after_the_end

    def priority(op: int) -> tuple[int, int]:
        freed = sum(view.sizes[b] for b in view.touches[op] if view.producers[b] >= 0 and uses_left(b) == 1)
        return freed - view.defined(op) - view.scratch[op], view.n_users(op)

    queue = [(priority(op), op) for op in view.ready(has_run)]
    order: list[int] = []
    while queue:
        best = max(range(len(queue)), key=lambda place: (queue[place][0], place))
        op = queue.pop(best)[1]
        order.append(op)
        was_last = {buffer for buffer in view.touches[op] if uses_left(buffer) == 2}
        has_run.add(op)
        queued = {other for _, other in queue}
        ready = view.ready(has_run)
        queue += [(priority(other), other) for other in view.successors[op] if other in ready and other not in queued]
        for buffer in sorted(was_last):
            for other in view.users[buffer]:
                stale = [entry for entry in queue if entry[1] == other and entry[0] != priority(other)]
                if stale:
                    queue.remove(stale[0])
                    queue.append((priority(other), other))
    return order
