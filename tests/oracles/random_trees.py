"""Random graphs in which every op has at most one successor and every buffer that is freed at most one user."""

import random

from lowtide.engine.graph import Graph, GraphBuilder, Lifetime


def random_forest(seed: int, n_ops: int) -> Graph:
    """Build the forest of a seed: several outputs per op, kept results, donated inputs, weights, scratch, in-place
    pairs, edges that only order, sizes of zero."""
    rng = random.Random(seed)
    builder = GraphBuilder(f"forest {seed}")
    weight = builder.add_buffer("weight", 7, Lifetime.PERSISTENT)
    kept = builder.add_buffer("kept", 3, Lifetime.INPUT)
    parents = [rng.choice((rng.randrange(op + 1, n_ops), op + 1)) if op + 1 < n_ops else -1 for op in range(n_ops)]
    parents = [-1 if rng.random() < 0.1 else parent for parent in parents]
    operands: list[list[int]] = [[] for _ in range(n_ops)]
    after: list[list[int]] = [[] for _ in range(n_ops)]
    sizes: dict[int, int] = {}

    def add_buffer(name: str, lifetime: Lifetime) -> int:
        size = rng.choice((0, 1, 2, 3, 4, 4, 8, 16))
        buffer = builder.add_buffer(name, size, lifetime)
        sizes[buffer] = size
        return buffer

    for op, parent in enumerate(parents):
        reads = operands[op] + [add_buffer(f"in{op}.{k}", Lifetime.DONATED) for k in range(rng.choice((0, 0, 0, 1, 2)))]
        lifetimes = [
            rng.choice((*[Lifetime.INTERMEDIATE] * 5, Lifetime.OUTPUT)) for _ in range(rng.choice((0, 1, 1, 2)))
        ]
        writes = [add_buffer(f"b{op}.{k}", lifetime) for k, lifetime in enumerate(lifetimes)]
        pairs = [(read, written) for read in reads for written in writes if sizes[read] == sizes[written]]
        builder.add_op(
            f"op{op}",
            "op",
            reads=[*reads, *rng.choice(([], [weight], [kept, weight]))],
            writes=writes,
            after=after[op],
            in_place=[pair for pair in pairs if rng.random() < 0.7],
            scratch_bytes=rng.choice((0, 0, 0, 2, 9)),
        )
        if parent >= 0:
            operands[parent] += [buffer for buffer in writes if rng.random() < 0.9]
            after[parent].append(op)
    return builder.build()


def random_tree(seed: int, n_ops: int) -> tuple[Graph, list[int]]:
    """Build a tree with one result per op and scratch; returns the graph and per op its parent, -1 at the root."""
    rng = random.Random(seed)
    parents = [rng.randrange(op + 1, min(n_ops, op + 40)) if op + 1 < n_ops else -1 for op in range(n_ops)]
    builder = GraphBuilder(f"tree {seed}")
    operands: list[list[int]] = [[] for _ in range(n_ops)]
    for op, parent in enumerate(parents):
        result = builder.add_buffer(f"b{op}", rng.randrange(1000))
        builder.add_op(f"op{op}", "op", reads=operands[op], writes=[result], scratch_bytes=rng.choice((0, 0, 500)))
        if parent >= 0:
            operands[parent].append(result)
    return builder.build(), parents
