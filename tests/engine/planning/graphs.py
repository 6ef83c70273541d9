"""Small graphs whose best plans are known, for the stages of planning."""

from lowtide.engine.graph import Graph, GraphBuilder, Lifetime


def diamond() -> Graph:
    """Two branches that grow and shrink; one after the other they need 1211 bytes, side by side 2210."""
    builder = GraphBuilder("diamond")
    weight = builder.add_buffer("weight", 5000, Lifetime.PERSISTENT)
    x = builder.add_buffer("x", 10, Lifetime.DONATED)
    big = [builder.add_buffer(f"big{k}", 1000 + 100 * k) for k in range(2)]
    small = [builder.add_buffer(f"small{k}", 100 + k) for k in range(2)]
    out = builder.add_buffer("out", 10, Lifetime.OUTPUT)
    for k in range(2):
        builder.add_op(f"grow{k}", "grow", reads=[x, weight], writes=[big[k]])
    for k in range(2):
        builder.add_op(f"shrink{k}", "sum", reads=[big[k]], writes=[small[k]])
    builder.add_op("join", "add", reads=small, writes=[out])
    return builder.build()


def two_ops(large: int) -> Graph:
    """A buffer that one op makes and another one reads."""
    builder = GraphBuilder("two ops")
    given, made, kept = (
        builder.add_buffer("x", 8),
        builder.add_buffer("a", large),
        builder.add_buffer("y", 8, Lifetime.OUTPUT),
    )
    builder.add_op("start", "f", writes=[given])
    builder.add_op("make", "f", reads=[given], writes=[made])
    builder.add_op("reduce", "f", reads=[made], writes=[kept])
    return builder.build()
