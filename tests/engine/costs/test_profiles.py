"""Prices of ops: what every profile says, and that it says which one it is."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given

from lowtide.core.errors import UsageError
from lowtide.engine.costs import PLAIN_MACHINE, PROFILES, Machine, price
from lowtide.engine.costs.estimates import estimate_flops
from lowtide.engine.graph import Graph, GraphBuilder, Lifetime
from lowtide.engine.plan import Plan, verify
from lowtide.engine.timeline import play_timeline
from tests.strategies import graphs

MACHINE = Machine(bytes_per_second=4.0, flops_per_second=10.0, start_seconds=100.0)


def _two_ops(*, cost: float = 1.0, flops: float | None = None) -> Graph:
    """Return a product of two 2 x 2 matrices (in single precision) followed by a ReLU."""
    builder = GraphBuilder("two ops")
    a, b, c, d = (builder.add_buffer(name, 16) for name in "abcd")
    builder.add_op("a", "source", writes=[a])
    builder.add_op("b", "source", writes=[b])
    builder.add_op("c", "aten.mm.default", reads=[a, b], writes=[c], cost=cost, flops=flops)
    builder.add_op("d", "aten.relu.default", reads=[c], writes=[d], cost=cost, flops=flops)
    return builder.build()


def test_eager_takes_the_larger_of_traffic_and_arithmetic_plus_a_start() -> None:
    """The product moves 48 bytes (12 s) and computes 16 operations (1.6 s); the ReLU moves 32 bytes (8 s)."""
    assert price(_two_ops(), "eager", machine=MACHINE).seconds.tolist() == [104, 104, 112, 108]
    slow = replace(MACHINE, flops_per_second=1.0)
    assert price(_two_ops(), "eager", machine=slow).seconds.tolist() == [104, 104, 116, 108]


def test_eager_keeps_what_a_reader_said_who_knows_shapes() -> None:
    assert price(_two_ops(cost=0.25), "eager", machine=MACHINE).seconds.tolist() == [1, 1, 0.25, 0.25]


def test_fused_leaves_only_the_arithmetic_of_pointwise_ops() -> None:
    """Four elements at 10 per second; everything else costs what it costs eagerly."""
    assert price(_two_ops(), "fused", machine=MACHINE).seconds.tolist() == pytest.approx([104, 104, 112, 0.4])


def test_fused_charges_a_pointwise_op_for_writing_what_a_product_reads() -> None:
    """Sixteen bytes at 4 per second are more than four elements at 10; a sum is fused, and reads no memory."""
    builder = GraphBuilder("rectified, then multiplied or summed")
    given = builder.add_buffer("given", 16, Lifetime.INPUT)
    for reader in ("mm", "sum"):
        rectified, end = builder.add_buffer(f"{reader} reads", 16), builder.add_buffer(reader, 16, Lifetime.OUTPUT)
        builder.add_op(f"relu for {reader}", "relu", reads=[given], writes=[rectified])
        builder.add_op(reader, reader, reads=[rectified], writes=[end])
    prices = price(builder.build(), "fused", machine=MACHINE).seconds
    assert prices[[0, 2]].tolist() == pytest.approx([4, 0.4])


def test_fused_shrinks_what_a_reader_priced_for_another_machine_by_the_same_share() -> None:
    """0.4 of the 108 seconds that the ReLU takes eagerly on this machine."""
    prices = price(_two_ops(cost=54.0), "fused", machine=MACHINE)
    assert prices.seconds.tolist() == pytest.approx([1, 1, 54, 0.2])


def test_flops_counts_arithmetic_alone_and_one_for_every_element_written_by_ops_of_unknown_kind() -> None:
    """16 operations of the product and 4 of the ReLU at 10 per second; each source writes 4 elements."""
    assert price(_two_ops(), "flops", machine=MACHINE).seconds.tolist() == [0.4, 0.4, 1.6, 0.4]


def test_flops_keeps_what_a_reader_counted_who_knows_shapes() -> None:
    assert price(_two_ops(flops=7.0), "flops", machine=MACHINE).seconds.tolist() == [0.4, 0.4, 0.7, 0.7]


def test_an_op_that_calls_graphs_takes_as_long_as_they_do_and_a_conditional_as_the_longest() -> None:
    builder = GraphBuilder("outer")
    for name, n_ops in (("short", 1), ("long", 3)):
        inner = GraphBuilder(name)
        for number in range(n_ops):
            inner.add_op(f"{name}{number}", "op")
        builder.add_subgraph(name, inner.build())
    builder.add_op("both", "call", callees=["short", "long"])
    builder.add_op("either", "conditional", callees=["short", "long"])
    assert price(builder.build(), "eager", machine=MACHINE).seconds.tolist() == [400, 300]


@pytest.mark.parametrize(
    ("rows", "inner", "columns"), [(1, 1, 1), (2, 3, 5), (64, 64, 64), (1024, 8, 4096), (4096, 4096, 1)]
)
@pytest.mark.parametrize("kind", ["aten.mm.default", "mm", "MatMul", "com.microsoft.FusedMatMul"])
def test_the_operations_of_a_matrix_product_follow_from_its_sizes(
    kind: str, rows: int, inner: int, columns: int
) -> None:
    sizes = [4 * rows * inner, 4 * inner * columns]
    assert estimate_flops(kind, sizes, [4 * rows * columns]) == pytest.approx(2 * rows * inner * columns)


@pytest.mark.parametrize("kernel", [1, 3])
@pytest.mark.parametrize("bias", [True, False])
def test_the_operations_of_a_convolution_follow_from_its_sizes_exactly_with_a_bias_or_a_3_by_3_kernel(
    kernel: int, bias: bool
) -> None:
    batch, sources, results, area = 2, 8, 16, 100
    reads = [4 * batch * sources * area, 4 * results * sources * kernel**2, *([4 * results] if bias else [])]
    true = 2 * batch * results * area * sources * kernel**2
    ratio = estimate_flops("aten.convolution.default", reads, [4 * batch * results * area]) / true
    assert ratio == pytest.approx(1 if bias or kernel == 3 else 3)


@given(graphs())
def test_every_profile_prices_every_op_of_every_graph(graph: Graph) -> None:
    for profile in PROFILES[:-1]:
        prices = price(graph, profile)
        assert prices.profile == profile == play_timeline(graph, Plan.baseline(graph), prices).profile
        assert prices.seconds.shape == (graph.n_ops,)
        assert (np.isfinite(prices.seconds) & (prices.seconds >= 0)).all()


@given(graphs())
def test_a_plan_made_for_the_priced_graph_is_one_for_the_graph_itself(graph: Graph) -> None:
    priced = replace(graph, cost=price(graph, "eager", machine=PLAIN_MACHINE).seconds)
    verify(graph, replace(Plan.baseline(priced), graph_fingerprint=graph.fingerprint), check_capacity=False)


def test_fused_is_never_dearer_than_eager() -> None:
    graph = _two_ops()
    assert (price(graph, "fused").seconds <= price(graph, "eager").seconds).all()


def test_wrong_calls_are_refused() -> None:
    graph = _two_ops()
    with pytest.raises(UsageError, match="unknown cost profile 'fast'"):
        price(graph, "fast")  # pyright: ignore[reportArgumentType]
    with pytest.raises(UsageError, match="needs the path of a costs file"):
        price(graph, "measured")
    with pytest.raises(UsageError, match="reads no costs file"):
        price(graph, "eager", costs_path="x.costs.json")
    for wrong in (0.0, -1.0, float("inf"), float("nan")):
        with pytest.raises(UsageError, match="machine with flops_per_second"):
            replace(MACHINE, flops_per_second=wrong)
