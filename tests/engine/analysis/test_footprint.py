"""What the simulator shows of a plan, step by step, in cases worked out by hand."""

from lowtide.engine.analysis import simulate
from lowtide.engine.graph import GraphBuilder, Lifetime
from lowtide.engine.plan import CopyIn, CopyOut, Free, Plan, Run
from tests.golden.every_feature import every_feature_graph, every_feature_plan


def test_live_bytes_are_read_after_allocation_and_before_anything_is_freed() -> None:
    builder = GraphBuilder("chain")
    builder.add_buffer("a", 5, Lifetime.DONATED)
    builder.add_buffer("b", 7)
    builder.add_buffer("c", 11, Lifetime.OUTPUT)
    builder.add_op("one", "k", reads=[0], writes=[1], scratch_bytes=100)
    builder.add_op("two", "k", reads=[1], writes=[2])
    graph = builder.build()
    footprint = simulate(graph, Plan.baseline(graph))
    assert footprint.live[:, 0].tolist() == [5, 112, 7, 18, 11]
    assert footprint.peak_bytes == {"device": 112}
    assert footprint.peak_steps == {"device": 0}


def test_every_step_of_a_plan_with_rematerialization_copies_and_a_callee() -> None:
    """Device: image 128, hidden 128 with scratch 100, its rerun, active in its place, result 64 with 80 more inside."""
    graph = every_feature_graph()
    footprint = simulate(graph, every_feature_plan(graph))
    device = [128, 356, 128, 356, 128, 128, 128, 128, 128, 0, 128, 128, 272, 64, 64, 64, 64]
    host = [32, 32, 32, 32, 32, 32, 32, 32, 160, 160, 160, 32, 32, 32, 96, 96, 32]
    assert footprint.live[:, 0].tolist() == device
    assert footprint.live[:, 1].tolist() == host


def test_a_persistent_buffer_counts_only_where_it_has_a_copy_outside_its_home() -> None:
    builder = GraphBuilder("offloaded weight")
    builder.add_space("device")
    builder.add_space("host")
    builder.add_buffer("weight", 10, Lifetime.PERSISTENT)
    builder.add_op("use", "k", reads=[0])
    graph = builder.build()
    steps = [CopyOut(0, 1), Free(0), CopyIn(0, 1), Run(0), Free(0, 0), CopyIn(0, 1)]
    footprint = simulate(graph, Plan.from_steps(graph, steps))
    assert footprint.live.tolist() == [[0, 0], [0, 10], [0, 10], [0, 10], [0, 10], [0, 10], [0, 10]]


def test_the_peak_before_the_first_step_is_that_of_the_inputs() -> None:
    builder = GraphBuilder("inputs only")
    builder.add_buffer("kept", 3, Lifetime.INPUT)
    builder.add_buffer("given", 4, Lifetime.DONATED)
    graph = builder.build()
    footprint = simulate(graph, Plan.baseline(graph))
    assert footprint.peak_bytes == {"device": 7}
    assert footprint.peak_steps == {"device": -1}


def test_the_largest_callee_counts_and_replaces_the_result_of_a_call_but_not_of_other_ops() -> None:
    inner = GraphBuilder("inner")
    inner.add_buffer("x", 30, Lifetime.INPUT)
    small, large = inner.build(), GraphBuilder("large")
    large.add_buffer("x", 50, Lifetime.INPUT)
    peaks: dict[str, int] = {}
    for kind in ("call", "custom"):
        builder = GraphBuilder("outer")
        builder.add_subgraph("small", small)
        builder.add_subgraph("large", large.build())
        builder.add_buffer("result", 20, Lifetime.OUTPUT)
        builder.add_op("op", kind, writes=[0], callees=["small", "large"])
        graph = builder.build()
        peaks[kind] = simulate(graph, Plan.baseline(graph)).peak_bytes["device"]
    assert peaks == {"call": 50, "custom": 70}
