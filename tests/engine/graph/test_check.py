"""An invalid program is refused by `build`, with one line that names the place."""

from collections.abc import Callable
from math import inf, nan

import pytest

from lowtide.core.errors import GraphError
from lowtide.engine.graph import GraphBuilder, Lifetime

HUGE = 2**63


def _two_ops(builder: GraphBuilder) -> tuple[int, int]:
    """Add an input and an intermediate, and ops that write and read the latter; returns both buffers."""
    source = builder.add_buffer("source", 8, Lifetime.INPUT)
    value = builder.add_buffer("value", 8)
    builder.add_op("make", "k", reads=[source], writes=[value])
    builder.add_op("use", "k", reads=[value])
    return source, value


def _callee(space: str = "device") -> GraphBuilder:
    builder = GraphBuilder("callee")
    builder.add_space(space)
    return builder


def _two_buffers_of_one_name(builder: GraphBuilder) -> None:
    builder.add_buffer("value", 1)


def _two_ops_of_one_name(builder: GraphBuilder) -> None:
    builder.add_op("use", "k")


def _two_spaces_of_one_name(builder: GraphBuilder) -> None:
    builder.add_space("device")
    builder.add_space("device")


def _too_many_spaces(builder: GraphBuilder) -> None:
    for number in range(300):
        builder.add_space(f"bank{number}")


def _total_that_overflows(builder: GraphBuilder) -> None:
    for number in range(3):
        builder.add_buffer(f"big{number}", 2**62)


def _total_with_scratch_that_overflows(builder: GraphBuilder) -> None:
    builder.add_buffer("big", 2**61)
    builder.add_op("hungry", "k", scratch_bytes=2**62)


def _total_with_callees_that_overflows(builder: GraphBuilder) -> None:
    callee = _callee()
    callee.add_buffer("big", 2**60)
    builder.add_subgraph("callee", callee.build())
    builder.add_buffer("big", 2**60 + 1)
    builder.add_op("call", "call", callees=["callee"])


def _calls_too_deep(builder: GraphBuilder) -> None:
    callee = _callee()
    for depth in range(70):
        outer = _callee()
        outer.add_subgraph(f"depth {depth}", callee.build())
        outer.add_op("call", "call", callees=[f"depth {depth}"])
        callee = outer
    builder.add_subgraph("callee", callee.build())
    builder.add_op("call", "call", callees=["callee"])


def _two_subgraphs_of_one_name(builder: GraphBuilder) -> None:
    other = _callee()
    other.add_op("only here", "k")
    builder.add_subgraph("callee", _callee().build())
    builder.add_subgraph("callee", _callee().build())
    builder.add_subgraph("callee", other.build())


def _callee_in_a_space_of_its_own(builder: GraphBuilder) -> None:
    builder.add_subgraph("callee", _callee("elsewhere").build())
    builder.add_op("call", "call", callees=["callee"])


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (_two_buffers_of_one_name, "two buffers are named 'value'"),
        (_two_ops_of_one_name, "two ops are named 'use'"),
        (_two_spaces_of_one_name, "two memory spaces are named 'device'"),
        (_too_many_spaces, "300 memory spaces"),
        (_total_that_overflows, r"2\^63 - 1 bytes in total"),
        (_total_with_scratch_that_overflows, r"limit is 2\^62"),
        (_total_with_callees_that_overflows, r"limit is 2\^62"),
        (_calls_too_deep, "more than 64 deep"),
        (_two_subgraphs_of_one_name, "two different subgraphs are named 'callee'"),
        (_callee_in_a_space_of_its_own, "'elsewhere', which its caller does not have"),
        (lambda b: b.add_buffer("x", -1), "-1 bytes"),
        (lambda b: b.add_buffer("x", HUGE), "sizes must be"),
        (lambda b: b.add_buffer("x", 1, space=1), "memory space 1"),
        (lambda b: b.add_buffer("x", 1, space=-1), "memory space -1"),
        (lambda b: b.add_buffer("x", 1, space=10**6), "memory space 1000000"),
        (lambda b: b.add_buffer("x", 1, Lifetime.OUTPUT), "never written"),
        (lambda b: b.add_op("o", "k", reads=[2]), "buffer 2, but there are only 2"),
        (lambda b: b.add_op("o", "k", writes=[-1]), "contains -1"),
        (lambda b: b.add_op("o", "k", mutates=[HUGE]), "not an id"),
        (lambda b: b.add_op("o", "k", reads=[b.add_buffer("late", 1)]), "before any op writes it"),
        (lambda b: b.add_op("o", "k", mutates=[b.add_buffer("late", 1)]), "before any op writes it"),
        (lambda b: b.add_op("o", "k", after=[2]), "'o' waits for op 'o'"),
        (lambda b: b.add_op("o", "k", after=[77]), "waits for op number 77"),
        (lambda b: b.add_op("o", "k", scratch_bytes=-5), "-5 bytes"),
        (lambda b: b.add_op("o", "k", cost=nan), "cost nan"),
        (lambda b: b.add_op("o", "k", cost=-1.0), "cost -1"),
        (lambda b: b.add_op("o", "k", cost=inf), "cost inf"),
        (lambda b: b.add_op("o", "k", flops=-1.0), "-1.0 flops"),
        (lambda b: b.add_op("o", "k", flops=inf), "inf flops"),
        (lambda b: b.add_op("o", "k", traffic_bytes=-1), "-1.0 bytes of traffic"),
        (lambda b: b.add_op("o", "k", ranks=0), "ranks 0; it must be from 1"),
        (lambda b: b.add_op("o", "k", ranks=8, rank_span=4), "8 ranks among 4 consecutive ones"),
        (lambda b: b.add_op("o", "k", reads=[0], in_place=[(0, 1)]), "must pair a buffer the op reads"),
        (lambda b: b.add_op("o", "k", reads=[0], writes=[1], in_place=[(0, 9)]), "buffer 9"),
        (lambda b: b.add_op("o", "k", reads=[0], writes=[0], in_place=[(0, 0)]), "with another one"),
        (lambda b: b.add_op("o", "k", reads=[0], writes=[1], in_place=[(0, 1, 0)]), "must hold pairs"),
        (lambda b: b.add_op("o", "k", callees=["gone"]), "'gone', which is not a subgraph"),
        (lambda b: b.add_space("s", alignment=0), "alignment 0"),
        (lambda b: b.add_space("s", alignment=2**40), "alignment"),
        (lambda b: b.add_space("s", capacity_bytes=-1), "capacity -1"),
        (lambda b: b.add_space("s", capacity_bytes=HUGE), "capacity"),
        (lambda b: b.add_space("s", bandwidth_bytes_per_s={"t": 1.0}), "'t', which is not a space"),
        (lambda b: b.add_space("s", bandwidth_bytes_per_s={"s": 0.0}), "must be positive"),
        (lambda b: b.add_space("s", bandwidth_bytes_per_s={"s": inf}), "must be positive"),
        (lambda b: b.add_space("s", bandwidth_bytes_per_s={"s": nan}), "must be positive"),
    ],
)
def test_a_graph_that_is_no_valid_program_is_refused(spoil: Callable[[GraphBuilder], object], message: str) -> None:
    builder = GraphBuilder("bad")
    _two_ops(builder)
    with pytest.raises(GraphError, match=message) as caught:
        _spoil_and_build(builder, spoil)
    assert "\n" not in str(caught.value)


def _spoil_and_build(builder: GraphBuilder, spoil: Callable[[GraphBuilder], object]) -> None:
    spoil(builder)
    builder.build()


def test_an_empty_graph_is_a_valid_program() -> None:
    graph = GraphBuilder("empty").build()
    assert (graph.n_ops, graph.n_buffers, graph.call_depth) == (0, 0, 1)


def test_sizes_up_to_the_limit_are_exact() -> None:
    builder = GraphBuilder("large")
    builder.add_buffer("x", 2**61, Lifetime.INPUT)
    assert builder.build().sizes.tolist() == [2**61]


def test_the_arrays_of_a_graph_cannot_be_written() -> None:
    builder = GraphBuilder("frozen")
    _two_ops(builder)
    graph = builder.build()
    with pytest.raises(ValueError, match="read-only"):
        graph.sizes[0] = 1
    with pytest.raises(ValueError, match="read-only"):
        graph.reads.values[0] = 1
