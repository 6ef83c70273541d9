"""Mesh-TensorFlow's list rule, recomputed from its definition for every ready op in every step."""

from lowtide.engine.analysis import Problem
from tests.oracles.slow_view import SlowView


def mesh_list(problem: Problem) -> list[int]:
    """Return the order."""
    view = SlowView.of(problem)
    has_run: set[int] = set()

    def bytes_freed(op: int) -> int:
        dying = [
            buffer
            for buffer in view.touches[op]
            if view.freeable(buffer) and {user for user in view.users[buffer] if user not in has_run} == {op}
        ]
        staying = [buffer for buffer in view.allocates[op] if view.users[buffer] or not view.freeable(buffer)]
        return sum(view.sizes[buffer] for buffer in dying) - sum(view.sizes[buffer] for buffer in staying)

    order: list[int] = []
    while len(order) < view.n_ops:
        best = min(view.ready(has_run), key=lambda op: (-bytes_freed(op), view.names[op]))
        order.append(best)
        has_run.add(best)
    return order
