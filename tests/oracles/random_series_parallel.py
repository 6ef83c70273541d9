"""Random series-parallel graphs in which the last user of every buffer that is freed is the same in every order."""

import random

from lowtide.engine.graph import Graph, GraphBuilder, Lifetime

SIZES = (0, 1, 2, 3, 4, 4, 8, 16)
Edge = tuple[int, int]


def random_series_parallel(seed: int, n_ops: int, *, largest: int = 0) -> Graph:
    """Build the graph of a seed: nested parts in series and side by side, with several sources and sinks.

    Dependences carry buffers or only order; some buffers are read once more where their part ends. There are kept
    results, donated inputs, weights, scratch and in-place pairs. Sizes are few, or up to `largest`.
    """
    rng = random.Random(seed)
    builder = GraphBuilder(f"series-parallel {seed}")
    weight = builder.add_buffer("weight", 7, Lifetime.PERSISTENT)
    edges, rejoined = _edges(rng, n_ops)
    sizes: dict[int, int] = {}
    reads: list[list[int]] = [[] for _ in range(n_ops)]
    after: list[list[int]] = [[] for _ in range(n_ops)]
    readers: list[list[int]] = [[] for _ in range(n_ops)]
    for first, last in edges:
        readers[first].append(last)

    def add_buffer(name: str, lifetime: Lifetime) -> int:
        size = rng.randint(1, largest) if largest else rng.choice(SIZES)
        buffer = builder.add_buffer(name, size, lifetime)
        sizes[buffer] = size
        return buffer

    for op in range(n_ops):
        reads[op] += [add_buffer(f"in{op}", Lifetime.DONATED) for _ in range(rng.choice((0, 0, 0, 1)))]
        kept = rng.choice(([], [], [Lifetime.OUTPUT], [Lifetime.INTERMEDIATE]))
        writes = [add_buffer(f"r{op}", lifetime) for lifetime in kept]
        for reader in readers[op]:
            if rng.random() < 0.2:
                after[reader].append(op)
            else:
                writes.append(add_buffer(f"b{len(sizes)}", rng.choice((Lifetime.OUTPUT, *[Lifetime.INTERMEDIATE] * 5))))
                for again in (reader, *rejoined.get((op, reader), ())):
                    reads[again].append(writes[-1])
        pairs = [(read, written) for read in reads[op] for written in writes if sizes[read] == sizes[written]]
        builder.add_op(
            f"op{op}",
            "op",
            reads=[*reads[op], *rng.choice(([], [weight]))],
            writes=writes,
            after=after[op],
            in_place=[pair for pair in pairs if rng.random() < 0.7],
            scratch_bytes=rng.choice((0, 0, 0, 2, 9)) * max(1, largest // 16),
        )
    return builder.build()


def _edges(rng: random.Random, n_ops: int) -> tuple[list[Edge], dict[Edge, list[int]]]:
    """Return edges between ops in program order and, for some, a later op that reads what they carry once more.

    Starting from one edge from a source to a sink, ops are put on edges, or on new edges beside them. Wherever an edge
    once was, there may be one again.
    """
    source, sink = -1, n_ops
    edges, former = [(source, sink)], {(source, sink)}
    for op in range(n_ops):
        edge = edges[rng.randrange(max(0, len(edges) - 12), len(edges))]
        if rng.random() < 0.6:
            edges.remove(edge)
        edges += [(edge[0], op), (op, edge[1])]
        former.update(edges[-2:])
    place = _random_places(rng, edges, n_ops)
    inner = [(first, last) for first, last in edges if first != source and last != sink]
    after: list[list[int]] = [[] for _ in range(n_ops)]
    ends: list[list[int]] = [[] for _ in range(n_ops)]
    for first, last in inner:
        after[first].append(last)
    for first, last in sorted(former):
        if first != source and last != sink:
            ends[first].append(last)
    rejoined: dict[Edge, list[int]] = {}
    for first, last in inner:
        chosen = rng.choice(ends[first])
        if rng.random() < 0.5 and chosen != last and _reaches(after, last, chosen):
            rejoined[place[first], place[last]] = [place[chosen]]
    return [(place[first], place[last]) for first, last in inner], rejoined


def _random_places(rng: random.Random, edges: list[Edge], n_ops: int) -> list[int]:
    waits_for = [0] * n_ops
    after: list[list[int]] = [[] for _ in range(n_ops)]
    for first, last in edges:
        if first >= 0 and last < n_ops:
            waits_for[last] += 1
            after[first].append(last)
    ready = [op for op in range(n_ops) if not waits_for[op]]
    place = [0] * n_ops
    for reached in range(n_ops):
        op = ready.pop(rng.randrange(len(ready)))
        place[op] = reached
        for other in after[op]:
            waits_for[other] -= 1
            if not waits_for[other]:
                ready.append(other)
    return place


def _reaches(after: list[list[int]], first: int, last: int) -> bool:
    reached, seen = [first], {first}
    for op in reached:  # grows while it is walked
        reached += [other for other in after[op] if other not in seen]
        seen.update(after[op])
    return last in seen
