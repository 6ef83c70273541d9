"""A program at another size, computed from three sizes."""

from hypothesis import given
from hypothesis import strategies as st

from lowtide.engine.graph import Graph, GraphBuilder, Lifetime
from lowtide.engine.graph.resized import have_equal_structure, resized


def _attention(rows: int, *, ops: int = 2) -> Graph:
    """Scores grow with the square of the rows."""
    builder = GraphBuilder("attention")
    weight = builder.add_buffer("weight", 64, Lifetime.PERSISTENT)
    x = builder.add_buffer("x", 8 * rows, Lifetime.INPUT)
    for op in range(ops):
        scores = builder.add_buffer(f"scores{op}", 2 * rows * rows + 6, Lifetime.OUTPUT)
        builder.add_op(f"multiply{op}", "mm", reads=[x, weight], writes=[scores], flops=4.0 * rows, traffic_bytes=rows)
    return builder.build()


@given(st.lists(st.integers(1, 4096), min_size=4, max_size=4, unique=True))
def test_a_graph_whose_sizes_are_quadratic_is_the_one_that_a_capture_would_give(sizes: list[int]) -> None:
    *samples, size = sizes
    found = resized([(each, _attention(each)) for each in samples], size)
    assert found is not None
    wanted = _attention(size)
    assert have_equal_structure(found, wanted)
    assert (found.sizes == wanted.sizes).all()
    assert abs(found.flops - wanted.flops).max() <= 1e-3 * size


def test_programs_that_change_with_the_size_are_not_computed() -> None:
    samples = [(1, _attention(1, ops=1)), (2, _attention(2)), (4, _attention(4))]
    assert resized(samples, 8) is None
