"""The simplest program that recomputation is for."""

from collections.abc import Sequence

from lowtide.engine.graph import Graph, GraphBuilder, Lifetime


def residual_chain(depth: int, *, pairs: bool = False, pure: bool = True, costs: Sequence[float] = ()) -> Graph:
    """A forward chain whose every result a backward chain reads again, last one first; all are of 8 bytes."""
    builder = GraphBuilder("residual chain")
    forward = [builder.add_buffer("x", 8, Lifetime.INPUT)]
    for k in range(depth):
        forward.append(builder.add_buffer(f"a{k}", 8))
        cost = costs[k] if costs else 1.0
        builder.add_op(f"f{k}", "f", reads=[forward[-2]], writes=[forward[-1]], pure=pure, cost=cost)
    gradient = forward[-1]
    for k in reversed(range(depth)):
        read, last = gradient, k == 0
        gradient = builder.add_buffer(f"g{k}", 8, Lifetime.OUTPUT if last else Lifetime.INTERMEDIATE)
        offered = [(read, gradient)] if pairs else []
        builder.add_op(f"b{k}", "b", reads=[read, forward[k]], writes=[gradient], in_place=offered)
    return builder.build()
