"""Live bytes after sets of ops, and the least of them between two sets, in plain Python from the definition."""

from collections.abc import Sequence
from collections.abc import Set as AbstractSet

from lowtide.core.index_spaces import OpId
from lowtide.engine.graph import Lifetime
from lowtide.engine.search.plain_max_flow import INFINITE, PlainMaxFlow
from lowtide.engine.search.plain_program import PlainProgram


def live_after(program: PlainProgram, executed: AbstractSet[OpId]) -> int:
    """Return the bytes that are live after a set of ops, in whatever order they ran."""
    return least_live(program, executed, frozenset(), ())


def least_live(
    program: PlainProgram,
    executed: AbstractSet[OpId],
    free: AbstractSet[OpId],
    dependencies: Sequence[tuple[OpId, OpId]],
) -> int:
    """Return the least bytes live after `executed` and any of the `free` ops that are closed together.

    They are closed if all that they wait for, by the program or by `dependencies` (earlier, later), is in one of both.
    A minimum cut: nodes on the source side are ops that ran. A buffer's node is there too when it costs nothing, that
    is when all its users are; to have its producer there without it costs its size.
    """
    flow = PlainMaxFlow(2)
    node = {op: flow.add_node() for op in free}
    given = ((earlier, later) for later in free for earlier in program.predecessors[later])
    for earlier, later in (*given, *dependencies):
        if earlier in node and later in node:
            flow.add_edge(node[later], node[earlier], INFINITE)
    total = program.bytes_of(Lifetime.INPUT)
    for buffer, size in enumerate(program.sizes):
        producer, lifetime = program.producers[buffer], program.lifetimes[buffer]
        if size == 0 or lifetime == Lifetime.INPUT:
            continue
        if producer in node:
            start = node[producer]
        elif producer in executed or (producer < 0 and lifetime == Lifetime.DONATED):
            start = flow.SOURCE
        else:
            continue
        waiting = [user for user in program.users[buffer] if user not in executed]
        if lifetime == Lifetime.OUTPUT or any(user not in node for user in waiting):
            if start == flow.SOURCE:
                total += size
            else:
                flow.add_edge(start, flow.SINK, size)
        elif waiting:
            joint = flow.add_node()
            flow.add_edge(start, joint, size)
            for user in waiting:
                flow.add_edge(joint, node[user], INFINITE)
    return total + (flow.run() if node else 0)
