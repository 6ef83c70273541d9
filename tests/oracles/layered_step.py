"""A training step of equal layers, as bfloat16 networks have them: what is handed on is not what is saved."""

from lowtide.engine.graph import Graph, GraphBuilder, Lifetime, Op


def layered_step(layers: int) -> Graph:
    """Return a step whose layers hand on a sum of one byte, and save a cast of it and two results, 22 bytes a layer."""
    builder = GraphBuilder("layers")
    handed = builder.add_buffer("x0", 1, Lifetime.INPUT)
    saved: list[tuple[int, int, int]] = []

    def op(name: str, size: int, *reads: int, cost: float) -> int:
        written = builder.add_buffer(name, size, Lifetime.INTERMEDIATE)
        builder.add(Op(name=name, kind=name.rstrip("0123456789"), reads=reads, writes=(written,), cost=cost))
        return written

    for layer in range(layers):
        cast = op(f"cast{layer}", 2, handed, cost=1.0)
        product = op(f"product{layer}", 10, cast, cost=20.0)
        active = op(f"active{layer}", 10, product, cost=1.0)
        saved.append((cast, product, active))
        down = op(f"down{layer}", 1, active, cost=20.0)
        handed = op(f"sum{layer}", 1, handed, down, cost=1.0)
    gradient = op("loss", 1, handed, cost=1.0)
    for layer in reversed(range(layers)):
        gradient = op(f"back{layer}", 1, gradient, *saved[layer], cost=40.0)
    builder.set_lifetime(gradient, Lifetime.OUTPUT)
    return builder.build()
