"""What is alive at every moment of every execution of a graph, ops running at once included."""

from collections.abc import Iterator
from itertools import combinations

from lowtide.engine.graph import Graph


def states(graph: Graph) -> Iterator[tuple[frozenset[int], frozenset[int]]]:
    """Yield every (finished ops, running ops) that an execution can be in."""
    before = [set(row) for row in graph.structure.predecessors]
    todo: list[tuple[frozenset[int], frozenset[int]]] = [(frozenset(), frozenset())]
    seen = set(todo)
    while todo:
        finished, running = todo.pop()
        yield finished, running
        following = [(finished | {op}, running - {op}) for op in sorted(running)]
        following += [
            (finished, running | {op})
            for op in range(graph.n_ops)
            if op not in finished | running and before[op] <= finished
        ]
        for state in following:
            if state not in seen:
                seen.add(state)
                todo.append(state)


def alive_together(graph: Graph) -> dict[tuple[int, int], set[frozenset[int]]]:
    """Return the pairs of buffers that some execution has in memory at once, with the ops that run meanwhile.

    A buffer is freed as soon as the last op that touches it is done.
    """
    buffers: list[tuple[int, bool, bool, set[int]]] = []
    for buffer in range(len(graph.sizes)):
        lifetime, producer = graph.buffer(buffer).lifetime, int(graph.structure.producers[buffer])
        touching = {*graph.structure.users[buffer].tolist(), *([producer] if producer >= 0 else [])}
        buffers.append((producer, lifetime.exists_at_start, lifetime.freeable and bool(touching), touching))
    together: dict[tuple[int, int], set[frozenset[int]]] = {}
    for finished, running in states(graph):
        alive = [
            buffer
            for buffer, (producer, at_start, freed, touching) in enumerate(buffers)
            if (at_start or producer in finished or producer in running) and not (freed and touching <= finished)
        ]
        for pair in combinations(alive, 2):
            together.setdefault(pair, set()).add(running)
    return together
