"""Lower bounds against all valid orders of small graphs."""

from itertools import islice

import numpy as np
from hypothesis import assume, given
from hypothesis import strategies as st

from lowtide import _native
from lowtide.engine.analysis import Problem
from lowtide.engine.analysis.folding import named_largest
from lowtide.engine.analysis.lower_bounds import BoundHolder, bound_holders, lower_bounds, with_callee_floors
from lowtide.engine.graph import Graph, GraphBuilder, Lifetime
from lowtide.engine.plan import verify
from tests.examples import examples
from tests.oracles.live_bytes import live_bytes_at
from tests.oracles.naive_player import order_peaks, valid_orders
from tests.oracles.plans import problem_of
from tests.strategies import graphs

_MOST_ORDERS = 800


def _all_orders(graph: Graph) -> list[list[int]]:
    orders = list(islice(valid_orders(graph), _MOST_ORDERS + 1))
    assume(len(orders) <= _MOST_ORDERS)
    return orders


@examples(150)
@given(graphs(max_ops=6), st.booleans())
def test_no_order_has_a_peak_below_the_bound(graph: Graph, in_place: bool) -> None:
    problem = problem_of(graph, in_place=in_place)
    bounds = lower_bounds(problem, [problem.given_order()])
    peaks = [order_peaks(graph, order, in_place=in_place) for order in _all_orders(graph)]
    for space, bound in enumerate(bounds):
        assert bound.space == graph.spaces[space].name
        assert bound.peak_bytes <= min(peak[space] for peak in peaks)


@examples(100)
@given(graphs(max_ops=6))
def test_the_least_cut_of_an_op_is_the_least_it_needs_in_any_order_without_pairs(graph: Graph) -> None:
    problem = problem_of(graph, in_place=False)
    orders = _all_orders(graph)
    for space in range(len(graph.spaces)):
        cutter = _native.ClosureCutter(problem.native, space, False)
        for op in range(graph.n_ops):
            least, _, _ = cutter.cut(op)
            assert least == min(live_bytes_at(graph, order, order.index(op), space) for order in orders)


@examples(150)
@given(graphs(max_ops=7))
def test_running_the_cut_set_first_gives_the_op_its_least_bytes(graph: Graph) -> None:
    problem = problem_of(graph, in_place=False)
    predecessors = list(graph.structure.predecessors)
    for space in range(len(graph.spaces)):
        cutter = _native.ClosureCutter(problem.native, space, False)
        for op in range(graph.n_ops):
            least, before, _ = cutter.cut(op)
            first = [other for other in range(graph.n_ops) if before[other]]
            rest = [other for other in range(graph.n_ops) if not before[other] and other != op]
            assert all(before[earlier] for other in [*first, op] for earlier in predecessors[other])
            assert live_bytes_at(graph, [*first, op, *rest], len(first), space) == least


@given(graphs(max_ops=6))
def test_an_op_that_may_work_in_place_never_needs_more_for_it(graph: Graph) -> None:
    problem = problem_of(graph)
    for space in range(len(graph.spaces)):
        plain = _native.ClosureCutter(problem.native, space, False)
        sharing = _native.ClosureCutter(problem.native, space, True)
        for op in range(graph.n_ops):
            assert sharing.cut(op)[0] <= plain.cut(op)[0]


@given(graphs(max_ops=7), st.booleans())
def test_the_named_op_needs_the_bound_and_every_other_op_no_more(graph: Graph, in_place: bool) -> None:
    problem = problem_of(graph, in_place=in_place)
    for space, bound in enumerate(lower_bounds(problem, [problem.given_order()])):
        cutter = _native.ClosureCutter(problem.native, space, in_place)
        needed = [cutter.cut(op)[0] for op in range(graph.n_ops)]
        assert bound.peak_bytes >= max(needed, default=0)
        if bound.op is not None:
            assert needed[bound.op] == bound.peak_bytes


@given(graphs(max_ops=7))
def test_more_known_orders_change_the_work_but_not_the_bound(graph: Graph) -> None:
    problem = problem_of(graph)
    orders = [np.asarray(order, np.int32) for order in islice(valid_orders(graph), 3)]
    alone = lower_bounds(problem, [problem.given_order()])
    assert [bound.peak_bytes for bound in lower_bounds(problem, orders)] == [bound.peak_bytes for bound in alone]


def test_inputs_and_outputs_alone_set_the_bound_when_no_op_needs_more() -> None:
    builder = GraphBuilder("big input")
    builder.add_buffer("unused", 100, Lifetime.INPUT)
    bounds = lower_bounds(problem_of(builder.build()), [np.zeros(0, np.int32)])
    assert [(bound.peak_bytes, bound.op) for bound in bounds] == [(100, None)]


def test_a_callee_counts_with_the_least_peak_of_its_own_orders() -> None:
    """In its program order the callee holds two large buffers at once; the bound may not assume that order."""
    inner = GraphBuilder("inner")
    small = [inner.add_buffer(f"small{k}", 1) for k in range(2)]
    large = [inner.add_buffer(f"large{k}", 50) for k in range(2)]
    for k in range(2):
        inner.add_op(f"make{k}", "make", writes=[large[k]])
    for k in range(2):
        inner.add_op(f"shrink{k}", "sum", reads=[large[k]], writes=[small[k]])
    builder = GraphBuilder("outer")
    builder.add_subgraph("inner", inner.build())
    builder.add_op("calls", "custom", callees=["inner"])
    graph = builder.build()
    (bound,) = lower_bounds(problem_of(graph), [np.zeros(1, np.int32)])
    assert bound.peak_bytes == 51
    assert bound.op == 0


def test_a_problem_whose_callees_count_with_their_floors_still_makes_plans_that_verify() -> None:
    inner = GraphBuilder("inner")
    large = [inner.add_buffer(f"large{i}", 100) for i in range(2)]
    small = [inner.add_buffer(f"small{i}", 1, Lifetime.OUTPUT) for i in range(2)]
    for i in range(2):
        inner.add_op(f"make{i}", "make", writes=[large[i]])
    for i in range(2):
        inner.add_op(f"use{i}", "use", reads=[large[i]], writes=[small[i]])
    builder = GraphBuilder("outer")
    builder.add_subgraph("inner", inner.build())
    builder.add_op("calls", "custom", callees=["inner"])
    problem = Problem(builder.build())
    floored = with_callee_floors(problem)
    assert (int(problem.transient.max()), int(floored.transient.max())) == (201, 101)
    verify(floored.graph, floored.plan(floored.given_order()))


@examples(300)
@given(graphs(9), st.booleans())
def test_sizes_of_holders_add_up_to_the_bound_largest_first(graph: Graph, in_place: bool) -> None:
    problem = problem_of(graph, in_place=in_place)
    bounds = lower_bounds(problem, [problem.given_order()])
    holders = bound_holders(problem, bounds)
    for bound in bounds:
        here = [holder.size_bytes for holder in holders if holder.space == bound.space]
        assert sum(here) == bound.peak_bytes
        assert here == sorted(here, reverse=True)
        assert all(here)


def test_operands_results_scratch_and_buffers_of_later_ops_are_named_except_reused_storage() -> None:
    builder = GraphBuilder("join")
    left, right, out = builder.add_buffer("left", 10), builder.add_buffer("right", 7), builder.add_buffer("out", 10)
    kept = builder.add_buffer("kept", 3, Lifetime.INPUT)
    end = builder.add_buffer("end", 1, Lifetime.OUTPUT)
    builder.add_op("make left", "make", reads=[kept], writes=[left])
    builder.add_op("make right", "make", writes=[right])
    builder.add_op("join", "add", reads=[left, right], writes=[out], in_place=[(left, out)], scratch_bytes=5)
    builder.add_op("finish", "sum", reads=[out, right], writes=[end])
    problem = problem_of(builder.build())
    bounds = lower_bounds(problem, [problem.given_order()])
    named = [(holder.name, holder.size_bytes) for holder in bound_holders(problem, bounds)]
    assert named == [("left", 10), ("right", 7), ("scratch of join", 5), ("kept", 3)]


def test_inputs_or_outputs_are_named_if_no_op_sets_the_bound() -> None:
    builder = GraphBuilder("edges")
    builder.add_buffer("unused", 4, Lifetime.DONATED)
    builder.add_buffer("stays", 2, Lifetime.INPUT)
    builder.add_buffer("weight", 9, Lifetime.PERSISTENT)
    problem = problem_of(builder.build())
    bounds = lower_bounds(problem, [problem.given_order()])
    assert [holder.name for holder in bound_holders(problem, bounds)] == ["unused", "stays"]


def test_a_line_of_live_buffers_folds_layers_and_counts_the_others() -> None:
    layers = [
        BoundHolder(
            space="device", name=f"gelu_{n}", size_bytes=10, kind="gelu", made_at=f"blocks.{n}.act at model.py:41"
        )
        for n in range(12)
    ]
    others = [BoundHolder(space="device", name=name, size_bytes=size) for size, name in enumerate("abcde", 1)]
    line = named_largest([*others, *layers])
    assert line == "gelu x 12 (120 B), e (5 B), d (4 B), c (3 B), 2 more (3 B)"
