"""Memory over runs is what the simulator says, however few columns show it."""

from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from lowtide.engine.analysis import Problem, simulate
from lowtide.engine.analysis.memory_over_time import PARTS, Role, memory_over_time, roles_of
from lowtide.engine.graph import Graph, GraphBuilder, Lifetime
from lowtide.engine.packing import pack_plan
from lowtide.engine.plan import Address, Plan, StepKind
from tests.strategies import graphs


@given(graphs(), st.integers(1, 7))
def test_the_largest_column_is_the_peak_and_the_parts_add_up_to_live_bytes(graph: Graph, grain: int) -> None:
    plan = Plan.baseline(graph)
    footprint = simulate(graph, plan)
    for space in range(len(graph.spaces)):
        memory = memory_over_time(graph, plan, space, grain)
        assert (memory.parts >= 0).all()
        assert memory.live.tolist() == footprint.live[memory.steps + 1, space].tolist()
        assert memory.live.max() == footprint.live[:, space].max()
        assert len(memory.steps) == max(1, -(-graph.n_ops // grain))


@given(graphs())
def test_with_a_column_a_run_every_run_shows_the_most_it_and_its_frees_hold(graph: Graph) -> None:
    plan = Plan.baseline(graph)
    live = simulate(graph, plan).live
    runs = np.flatnonzero(plan.kinds == StepKind.RUN).tolist()
    edges = [0, *(run + 1 for run in runs[1:]), len(live)]
    for space in range(len(graph.spaces)):
        most = [live[start:end, space].max() for start, end in pairwise(edges)]
        assert memory_over_time(graph, plan, space, 1).live.tolist() == most


@given(graphs())
def test_padding_and_fragmentation_never_lead_beyond_the_arena(graph: Graph) -> None:
    plan = Plan.baseline(graph)
    packing = pack_plan(graph, plan, Problem(graph).transient)
    packed = plan.with_claims(
        status="feasible",
        peak_bytes={},
        lower_bound_bytes={},
        arena_bytes=packing.arena_bytes,
        addresses=packing.addresses,
    )
    for space, name in enumerate(space.name for space in graph.spaces):
        assert memory_over_time(graph, packed, space, 1).parts.sum(axis=0).max() <= packing.arena_bytes[name]


def test_a_hole_between_two_buffers_is_fragmentation() -> None:
    builder = GraphBuilder("hole")
    low, high, out = (builder.add_buffer(name, 100) for name in ("low", "high", "out"))
    builder.add_op("make both", "make", writes=[low, high])
    builder.add_op("use low", "use", reads=[low], writes=[out])
    builder.add_op("use high", "use", reads=[high, out])
    graph = builder.build()
    plan = Plan.baseline(graph)
    addresses = [Address(low, 0, 2, 0, 0), Address(high, 0, 4, 0, 100), Address(out, 1, 5, 0, 200)]
    plan = plan.with_claims(
        status="feasible", peak_bytes={}, lower_bound_bytes={}, arena_bytes={"device": 300}, addresses=addresses
    )
    memory = memory_over_time(graph, plan, 0, 1)
    assert memory.live.tolist() == [200, 300, 200]
    assert memory.parts[PARTS.index("fragmentation")].tolist() == [0, 0, 100]


def test_what_is_kept_for_the_way_back_is_an_activation_and_what_an_update_reads_a_gradient() -> None:
    """The state of an optimizer, which is updated before anything reads it, does not end the way forward."""
    builder = GraphBuilder("step")
    weights = [builder.add_buffer(f"weight{i}", 8, Lifetime.PERSISTENT) for i in range(2)]
    momentum = builder.add_buffer("momentum", 8, Lifetime.PERSISTENT)
    x = builder.add_buffer("x", 8, Lifetime.INPUT)
    names = ["hidden", "squeezed", "logits", "gradient of logits", "gradient"]
    hidden, squeezed, logits, of_logits, gradient = (builder.add_buffer(name, 8) for name in names)
    loss = builder.add_buffer("loss", 8, Lifetime.OUTPUT)
    builder.add_op("first layer", "mm", reads=[x, weights[0]], writes=[hidden])
    builder.add_op("squeeze", "sum", reads=[hidden], writes=[squeezed])
    builder.add_op("second layer", "mm", reads=[squeezed, weights[1]], writes=[logits])
    builder.add_op("loss", "loss", reads=[logits], writes=[loss, of_logits])
    builder.add_op("backward", "mm", reads=[hidden, of_logits], writes=[gradient])
    builder.add_op("average", "lerp", reads=[gradient], mutates=[momentum])
    builder.add_op("update", "sgd", reads=[momentum], mutates=weights)
    roles = roles_of(builder.build())
    assert [Role(role).name for role in roles[[x, hidden, squeezed, logits, of_logits, gradient, loss]]] == [
        *("INPUT", "ACTIVATION", "TEMPORARY", "ACTIVATION", "TEMPORARY", "UPDATE", "OUTPUT")
    ]
