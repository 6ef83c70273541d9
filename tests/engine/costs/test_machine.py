"""Prices for machines by name, and of collectives."""

import pytest

from lowtide.core.errors import UsageError
from lowtide.engine.costs import MACHINES, price, sent_bytes
from lowtide.engine.graph import Graph, GraphBuilder, Lifetime


def _priced_by_a_reader() -> Graph:
    """A product that computes much, a sum that only moves bytes, and gathers within a node and across nodes."""
    builder = GraphBuilder("priced")
    x = builder.add_buffer("x", 8, Lifetime.INPUT)
    for name, flops, traffic, ranks, span in (
        ("product", 1e15, 1000, 1, 1),
        ("sum", 10, 10**12, 1, 1),
        ("near", 0, 9 * 10**9, 8, 8),
        ("far", 0, 9 * 10**9, 8, 64),
    ):
        kind = "aten.mm" if ranks == 1 else "_c10d_functional.all_gather_into_tensor"
        y = builder.add_buffer(name, 8, Lifetime.OUTPUT)
        builder.add_op(
            name, kind, reads=[x], writes=[y], cost=0.5, flops=flops, traffic_bytes=traffic, ranks=ranks, rank_span=span
        )
    return builder.build()


@pytest.mark.parametrize("name", MACHINES)
def test_what_a_reader_counted_is_priced_for_the_machine_that_is_named(name: str) -> None:
    """By arithmetic or by traffic, whichever takes longer, and by link or network for a collective."""
    machine = MACHINES[name]
    product, total, near, far = price(_priced_by_a_reader(), "eager", machine=machine).seconds.tolist()
    if name == "plain":
        assert product == total == near == far == 0.5  # what the reader says is for this machine
        return
    assert price(_priced_by_a_reader(), f"eager@{name}").seconds.tolist() == [product, total, near, far]
    assert product == pytest.approx(1e15 / machine.flops_per_second, rel=1e-3)
    assert total == pytest.approx(1e12 / machine.bytes_per_second, rel=1e-3)
    by_link, by_network = 7e9 / machine.link_bytes_per_second, 7e9 / machine.network_bytes_per_second
    assert near == pytest.approx(by_link if machine.devices_per_node == 8 else by_network, rel=1e-3)
    assert far == pytest.approx(by_network, rel=1e-3)


@pytest.mark.parametrize("ranks", [2, 3, 8, 512])
def test_a_ring_sends_all_but_one_part_of_the_whole_tensor(ranks: int) -> None:
    """A reduction to all ranks sends what a scatter and a gather send."""
    part, whole = 100, 100 * ranks
    gather = sent_bytes("_c10d_functional.all_gather_into_tensor", part + whole, ranks)
    scatter = sent_bytes("_c10d_functional.reduce_scatter_tensor", whole + part, ranks)
    assert gather == scatter == pytest.approx(part * (ranks - 1))
    assert sent_bytes("_c10d_functional.all_reduce", 2 * whole, ranks) == pytest.approx(gather + scatter)
    assert sent_bytes("_c10d_functional.all_to_all_single", 2 * whole, ranks) == pytest.approx(gather)


@pytest.mark.parametrize(
    ("profile", "message"),
    [
        ("eager@h1000", "unknown machine 'h1000'; did you mean 'h100'"),
        ("given@h100", "'given' estimates for no machine; choose one of eager"),
        ("fast@h100", "unknown cost profile 'fast'"),
    ],
)
def test_unknown_machines_and_profiles_are_refused(profile: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        price(_priced_by_a_reader(), profile)
