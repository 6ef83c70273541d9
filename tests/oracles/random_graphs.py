"""Small random graphs that hold everything a graph may hold."""

import random

from lowtide.engine.graph import Graph, GraphBuilder, Lifetime

SIZES = (0, 1, 1, 2, 2, 3, 5, 8, 13)
"""Few and small, so that ties are common."""


def random_graph(seed: int, *, plain: bool = False, limited: bool = True) -> Graph:
    """Build the graph of a seed: up to 24 ops, several outputs per op, donated inputs, control edges, repeated reads,
    zero sizes, mutation, rewritten buffers, ordered ops, in-place pairs.

    Unless `plain`, there may also be a second memory space, scratch, and inputs that stay. Spaces may be `limited`.
    """
    rng = random.Random(seed)
    builder = GraphBuilder(f"random {seed}")
    n_spaces = 1 if plain else rng.choice((1, 1, 2))
    for space in range(n_spaces):
        builder.add_space(f"space{space}", capacity_bytes=rng.choice((None, 20)) if limited else None)
    at_start = [Lifetime.PERSISTENT, Lifetime.DONATED] if plain else list(Lifetime)[:3]
    sizes: list[int] = []

    def add_buffer(name: str, lifetime: Lifetime) -> int:
        sizes.append(rng.choice(SIZES))
        return builder.add_buffer(name, sizes[-1], lifetime, space=rng.randrange(n_spaces))

    buffers = [add_buffer(f"in{k}", rng.choice(at_start)) for k in range(rng.randint(0, 4))]
    n_ops = rng.randint(1, 24)
    names = [f"op{k}" for k in range(n_ops)]
    rng.shuffle(names)
    for op in range(n_ops):
        reads = rng.choices(buffers[-10:], k=rng.choice((0, 1, 1, 2, 2, 3))) if buffers else []
        rng.shuffle(reads)
        written: list[int] = []
        for k in range(rng.choice((0, 1, 1, 1, 1, 2, 3))):
            lifetime = Lifetime.OUTPUT if rng.random() < 0.15 else Lifetime.INTERMEDIATE
            written.append(add_buffer(f"b{op}.{k}", lifetime))
        builder.add_op(
            names[op],
            "op",
            reads=reads,
            writes=[*written, *(rng.sample(buffers, 1) if buffers and rng.random() < 0.05 else [])],
            mutates=rng.sample(buffers, 1) if buffers and rng.random() < 0.1 else [],
            after=rng.sample(range(op), 1) if op and rng.random() < 0.15 else [],
            in_place=[(r, w) for r in dict.fromkeys(reads) for w in written if sizes[r] == sizes[w]][:3],
            scratch_bytes=0 if plain else rng.choice((0, 0, 0, 4)),
            ordered=rng.random() < 0.05,
        )
        buffers += written
    return builder.build()
