"""Why a peak cannot be lower: what is named adds up to the bound, and nothing else could be left out."""

from hypothesis import given
from hypothesis import strategies as st

from lowtide.core.units import ByteUnit
from lowtide.engine.analysis.bound_holders import BoundHolder, bound_holders
from lowtide.engine.analysis.folding import named_largest
from lowtide.engine.analysis.lower_bounds import lower_bounds
from lowtide.engine.graph import Graph, GraphBuilder, Lifetime
from tests.examples import examples
from tests.oracles.plans import problem_of
from tests.strategies import graphs


@examples(300)
@given(graphs(9), st.booleans())
def test_sizes_add_up_to_the_bound_in_every_memory_space_largest_first(graph: Graph, in_place: bool) -> None:
    problem = problem_of(graph, in_place=in_place)
    bounds = lower_bounds(problem, [problem.given_order()])
    holders = bound_holders(problem, bounds)
    for bound in bounds:
        here = [holder.size_bytes for holder in holders if holder.space == bound.space]
        assert sum(here) == bound.peak_bytes
        assert here == sorted(here, reverse=True)
        assert all(here)


def test_operands_results_scratch_and_what_others_still_need_are_named_a_buffer_taken_over_is_not() -> None:
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


def test_where_no_op_sets_the_bound_the_inputs_or_the_outputs_are_named() -> None:
    builder = GraphBuilder("edges")
    builder.add_buffer("unused", 4, Lifetime.DONATED)
    builder.add_buffer("stays", 2, Lifetime.INPUT)
    builder.add_buffer("weight", 9, Lifetime.PERSISTENT)
    problem = problem_of(builder.build())
    bounds = lower_bounds(problem, [problem.given_order()])
    assert [holder.name for holder in bound_holders(problem, bounds)] == ["unused", "stays"]


def test_a_line_of_what_is_live_folds_layers_and_counts_what_it_does_not_name() -> None:
    layers = [
        BoundHolder(
            space="device", name=f"gelu_{n}", size_bytes=10, kind="gelu", made_at=f"blocks.{n}.act at model.py:41"
        )
        for n in range(12)
    ]
    others = [BoundHolder(space="device", name=name, size_bytes=size) for size, name in enumerate("abcde", 1)]
    line = named_largest([*others, *layers], ByteUnit(120))
    assert line == "gelu x 12 (120 B), e (5 B), d (4 B), c (3 B), 2 more (3 B)"
