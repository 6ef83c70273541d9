"""Mesh-TensorFlow's list scheduler with the defects of the original."""

from lowtide.engine.analysis import Problem
from tests.oracles.slow_view import SlowView


def mesh_list_with_defects(problem: Problem) -> list[int]:
    """Return the order when

    - a use count that fell to one is passed over if the last *output* of the op just run is final,
    - an op that is the only user of a tensor from the start frees it once per read.

    What the caller keeps is final; of what no op allocates, the original knows nothing, and only donated inputs count.
    """
    view = SlowView.of(problem)
    final = [not view.freeable(buffer) for buffer in range(len(view.sizes))]
    known = [producer >= 0 or not its for producer, its in zip(view.producers, final, strict=True)]
    users = [set(buffer_users) for buffer_users in view.users]
    freed = [0] * view.n_ops
    for op in range(view.n_ops):
        freed[op] += sum(view.sizes[b] for b in view.reads[op] if len(users[b]) == 1 and not final[b])
        freed[op] -= sum(view.sizes[b] for b in view.allocates[op] if users[b] or final[b])
    order: list[int] = []
    while len(order) < view.n_ops:
        best = min(view.ready(set(order)), key=lambda op: (-freed[op], view.names[op]))
        order.append(best)
        for buffer in view.touches[best]:
            users[buffer].remove(best)
            last_is_final = bool(view.allocates[best]) and final[view.allocates[best][-1]]
            if len(users[buffer]) == 1 and known[buffer] and not last_is_final:
                (other,) = users[buffer]
                freed[other] += view.sizes[buffer]
    return order
