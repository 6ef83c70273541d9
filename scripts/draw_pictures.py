"""Draw the pictures of docs/concepts by lowtide itself; run it after a change of what plans or pictures look like."""

from collections.abc import Iterator
from pathlib import Path

from lowtide import Buffers, Graph, GraphBuilder, Lifetime, Plan, minimize, pack
from lowtide.engine.offload import Host
from lowtide.reporting.export.svg import packing_svg, plan_svg

FOLDER = Path(__file__).parents[1] / "docs" / "pictures"
MIB = 2**20
RECOMPUTE = ("reorder", "share", "recompute")
OFFLOAD = ("reorder", "share", "offload")


def branches() -> Graph:
    """Return three branches that grow and shrink, written so that all grow first."""
    builder = GraphBuilder("branches")
    x = builder.add_buffer("x", MIB, Lifetime.INPUT)
    large = [builder.add_buffer(f"large{k}", 4 * MIB) for k in range(3)]
    small = [builder.add_buffer(f"small{k}", MIB) for k in range(3)]
    y = builder.add_buffer("y", MIB, Lifetime.OUTPUT)
    for k in range(3):
        builder.add_op(f"grow{k}", "grow", reads=[x], writes=[large[k]])
    for k in range(3):
        builder.add_op(f"shrink{k}", "shrink", reads=[large[k]], writes=[small[k]])
    builder.add_op("sum", "sum", reads=small, writes=[y])
    return builder.build()


def training(layers: int = 6) -> Graph:
    """Return a chain of layers and its backward pass, which reads every activation again, last one first."""
    builder = GraphBuilder("training")
    held = [builder.add_buffer("x", MIB, Lifetime.INPUT)]
    for k in range(layers):
        held.append(builder.add_buffer(f"activation{k}", MIB))
        builder.add_op(f"forward{k}", "layer", reads=[held[-2]], writes=[held[-1]], cost=1.0)
    gradient = builder.add_buffer("gradient of the loss", MIB)
    builder.add_op("loss", "loss", reads=[held[-1]], writes=[gradient], cost=1.0)
    for k in reversed(range(layers)):
        last = Lifetime.OUTPUT if k == 0 else Lifetime.INTERMEDIATE
        written = builder.add_buffer(f"gradient{k}", MIB, last)
        builder.add_op(f"backward{k}", "layer_backward", reads=[gradient, held[k]], writes=[written], cost=2.0)
        gradient = written
    return builder.build()


def lives() -> Buffers:
    """Return live ranges that a first fit leaves holes between."""
    lives = [
        ("a", 0, 2, 4),
        ("b", 0, 5, 2),
        ("c", 3, 8, 3),
        ("d", 3, 5, 1),
        ("e", 6, 11, 3),
        ("f", 9, 14, 4),
        ("g", 9, 11, 1),
    ]
    names, first, last, sizes = zip(*lives, strict=True)
    return Buffers(first, last, [size * MIB for size in sizes], names=names)


def pictures() -> Iterator[tuple[str, bytes]]:
    """Yield the name and the content of every picture."""
    graph = branches()
    yield "order_given.svg", plan_svg(graph, Plan.baseline(graph), 0)
    yield "order_best.svg", plan_svg(graph, minimize(graph).plan, 0)
    for name, method in (("packing_by_birth.svg", "first-fit-by-birth"), ("packing_best.svg", None)):
        yield name, packing_svg("seven buffers", lives(), pack(lives(), method=method))
    graph = training()
    yield "training_given.svg", plan_svg(graph, Plan.baseline(graph), 0)
    yield "training_recomputed.svg", plan_svg(graph, minimize(graph, budget="75%", allow=RECOMPUTE).plan, 0)
    beside = Host(bandwidth_bytes_per_s=MIB).added_to(graph)
    yield "training_offloaded.svg", plan_svg(beside, minimize(beside, budget="75%", allow=OFFLOAD).plan, 0)


if __name__ == "__main__":
    for name, content in pictures():
        (FOLDER / name).write_bytes(content)
