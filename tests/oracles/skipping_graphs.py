"""Small graphs in which much can be dropped and made again."""

from random import Random

from lowtide.engine.graph import Graph, GraphBuilder, Lifetime


def skipping_graph(seed: int) -> Graph:
    """Six or seven ops that read again what was made long before, so that much can be dropped: several outputs per op,
    scratch, in-place pairs, a donated input, a result that stays, and now and then an op that must run once."""
    random = Random(seed)
    builder = GraphBuilder(f"skipping {seed}")
    sizes = [4, 2]
    buffers = [builder.add_buffer("x", 4, Lifetime.PERSISTENT), builder.add_buffer("d", 2, Lifetime.DONATED)]
    n_ops = random.randint(6, 7)
    for op in range(n_ops):
        reads = [buffers[-1], *random.sample(buffers, random.choice((0, 1, 1)))]
        written: list[int] = []
        for _ in range(random.choice((1, 1, 1, 2))):
            sizes.append(random.choice((1, 2, 4, 4, 6)))
            stays = op + 1 == n_ops or random.random() < 0.1
            lifetime = Lifetime.OUTPUT if stays else Lifetime.INTERMEDIATE
            written.append(builder.add_buffer(f"b{len(sizes)}", sizes[-1], lifetime))
        builder.add_op(
            f"op{op}",
            "op",
            reads=reads,
            writes=written,
            in_place=[(r, w) for r in dict.fromkeys(reads) for w in written if sizes[r] == sizes[w]],
            scratch_bytes=random.choice((0, 0, 3)),
            pure=random.random() < 0.9,
            cost=random.choice((1.0, 2.0, 5.0)),
        )
        buffers += written
    return builder.build()
