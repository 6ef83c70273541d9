"""Slots for the buffers of a graph, and as offsets."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lowtide.core.errors import UsageError
from lowtide.engine.analysis import Problem
from lowtide.engine.graph import Graph, GraphBuilder, Lifetime, read_graph_file
from lowtide.engine.packing import Buffers, pack
from lowtide.engine.plan import Free, Plan, Run, verify
from lowtide.frameworks.caffe2.sharing.slot_search import Intervals, search, total_bytes
from lowtide.share import (
    NamedNet,
    Sharing,
    share,
    share_branch_safe,
    share_by_interference,
    slot_offsets,
    verify_equality,
)
from tests.strategies import graphs

DATA = Path(__file__).parents[3] / "data" / "graphs"


def _assert_played_right(graph: Graph, plan: Plan, sharing: Sharing) -> None:
    """Assert that slots are free when a buffer is allocated, except in an in-place pair."""
    holds: dict[int, int] = {}
    slot_of = sharing.slot_of.tolist()
    for buffer in np.flatnonzero((graph.lifetimes == Lifetime.INPUT) | (graph.lifetimes == Lifetime.DONATED)).tolist():
        assert slot_of[buffer] not in holds
        holds[slot_of[buffer]] = buffer
    for step in plan.steps():
        if isinstance(step, Run):
            for read, written in step.pairs:
                assert slot_of[read] == slot_of[written]
                assert holds.pop(slot_of[read]) == read
            for buffer in graph.structure.allocates[step.op].tolist():
                assert slot_of[buffer] not in holds
                holds[slot_of[buffer]] = buffer
        elif isinstance(step, Free):
            assert holds.pop(slot_of[step.buffer]) == step.buffer
    for buffer, slot in enumerate(slot_of):
        if slot >= 0:
            assert sharing.slot_sizes[slot] >= graph.sizes[buffer]
            assert sharing.slot_spaces[slot] == graph.buffer_spaces[buffer]
        else:
            assert graph.lifetimes[buffer] == Lifetime.PERSISTENT or not len(graph.structure.users[buffer])


@given(graphs(9), st.booleans(), st.sampled_from(["greedy", "optimal"]))
def test_a_slot_holds_one_live_buffer_at_a_time(graph: Graph, in_place: bool, algorithm: str) -> None:
    problem = Problem(graph, in_place=in_place)
    sharing = share(graph, in_place=in_place, algorithm=algorithm, work_limit=1000)
    _assert_played_right(graph, problem.plan(problem.given_order()), sharing)
    for position, space in enumerate(graph.spaces):
        sizes = sharing.slot_sizes[sharing.slot_spaces == position]
        assert sharing.slot_bytes[space.name] == sizes.sum() >= sharing.lower_bound_bytes[space.name]
        assert not sharing.optimal or sizes.sum() == sharing.lower_bound_bytes[space.name]


@pytest.mark.parametrize("name", ["unet_plain_b4.step", "rwcell_ws16_s0"])
def test_real_graphs_need_few_more_bytes_in_slots_than_at_once(name: str) -> None:
    graph = read_graph_file(DATA / f"{name}.graph.json.gz")
    greedy, best = share(graph, algorithm="greedy"), share(graph)
    problem = Problem(graph)
    evaluation = problem.evaluate(problem.given_order())
    _assert_played_right(graph, problem.plan(problem.given_order()), best)
    assert best.slot_bytes["device"] <= greedy.slot_bytes["device"]
    assert best.slot_bytes["device"] <= 1.6 * evaluation.peaks[0]


def test_another_order_may_be_given() -> None:
    builder = GraphBuilder("two chains")
    a, b, c, d = (builder.add_buffer(name, 4) for name in "abcd")
    for reads, writes in (((), a), ((), b), ((a,), c), ((b,), d)):
        builder.add_op(f"op{writes}", "op", reads=reads, writes=[writes])
    graph = builder.build()
    assert share(graph).slot_bytes == {"device": 12}
    assert share(graph, np.array([0, 2, 1, 3], np.int32)).slot_bytes == {"device": 8}
    for wrong in ([2, 0, 1, 3], [0, 1, 2], [0, 1, 2, 9], [0, 0, 1, 2]):
        with pytest.raises(UsageError, match="does not run every op once"):
            share(graph, np.array(wrong, np.int32))


def test_an_unknown_algorithm_or_a_negative_limit_is_a_usage_error() -> None:
    graph = GraphBuilder("empty").build()
    assert share(graph).slot_bytes == {"device": 0}
    for options in ({"algorithm": "best"}, {"work_limit": -1}):
        with pytest.raises(UsageError, match="greedy or optimal"):
            share(graph, **options)


@given(graphs(9))
def test_a_graph_seen_by_names_can_be_shared_by_name(graph: Graph) -> None:
    net = NamedNet.from_graph(graph)
    found = share_by_interference(net, order="longest-path")
    assert not net.externals & set(found.shared.renames)
    verify(graph, Plan.from_order(graph, np.array(found.order, np.int32)))
    safe = share_branch_safe(net, net.external_inputs, range(graph.n_ops), net.blobs, "")
    verify_equality(net, safe.net)
    homes = dict(zip(graph.buffer_names, graph.buffer_spaces.tolist(), strict=True))
    for renames in (found.shared.renames, safe.renames):
        slots: dict[str, set[int]] = {}
        for blob, slot in renames.items():
            slots.setdefault(slot, set()).add(homes[blob])
        assert all(len(spaces) == 1 for spaces in slots.values())


def test_inputs_and_outputs_of_a_graph_are_external_and_ordered_ops_wait_for_one_another() -> None:
    builder = GraphBuilder("all classes")
    buffers = {lifetime: builder.add_buffer(lifetime.name.lower(), 4, lifetime) for lifetime in Lifetime}
    builder.add_op("free", "op", reads=[buffers[Lifetime.DONATED]], writes=[buffers[Lifetime.OUTPUT]])
    builder.add_op("first", "op", writes=[buffers[Lifetime.INTERMEDIATE]], ordered=True, device="device")
    builder.add_op("second", "op", mutates=[buffers[Lifetime.INPUT]], ordered=True, after=[0])
    net = NamedNet.from_graph(builder.build())
    assert net.external_inputs == ("persistent", "input", "donated")
    assert net.external_outputs == ("output",)
    assert [op.after for op in net.ops] == [(), (), (0, 1)]
    assert (net.ops[2].inputs, net.ops[2].outputs) == (("input",), ("input",))
    assert [op.device for op in net.ops] == [None, "device", None]
    assert net.size_of("input") == 4


BUFFERS = st.lists(st.tuples(st.integers(0, 12), st.integers(1, 6), st.sampled_from((0, 1, 2, 7, 30))), max_size=25)


def _arrays(buffers: Sequence[tuple[int, int, int]]) -> list[np.ndarray]:
    table = np.asarray(buffers, np.int64).reshape(-1, 3)
    return [table[:, 0].copy(), table[:, 0] + table[:, 1], table[:, 2].copy()]


@given(BUFFERS, st.sampled_from((1, 4, 64)), st.sampled_from((0, 500)))
def test_offsets_of_slots_are_aligned_and_never_overlap(
    buffers: list[tuple[int, int, int]], alignment: int, work_limit: int
) -> None:
    first, last, sizes = _arrays(buffers)
    offsets = slot_offsets(first, last, sizes, alignment=alignment, work_limit=work_limit)
    assert not (offsets % alignment).any()
    for one in range(len(sizes)):
        for other in range(one):
            apart_in_time = last[one] <= first[other] or last[other] <= first[one]
            apart = offsets[one] + sizes[one] <= offsets[other] or offsets[other] + sizes[other] <= offsets[one]
            assert apart_in_time or apart


@given(BUFFERS)
def test_the_arena_of_slots_is_their_total(buffers: list[tuple[int, int, int]]) -> None:
    first, last, sizes = _arrays(buffers)
    found = search(Intervals(first, last - 1, sizes), 500)
    offsets = slot_offsets(first, last, sizes, work_limit=500)
    assert (offsets + sizes).max(initial=0) == total_bytes(Intervals(first, last - 1, sizes), found.slot_of)


def test_offsets_pack_more_tightly_than_slots_where_sizes_change() -> None:
    """Two small buffers fit into the place of a large one, but not into its slot."""
    first, last, sizes = _arrays([(0, 2, 10), (2, 2, 5), (2, 2, 5)])
    assert (slot_offsets(first, last, sizes, work_limit=100) + sizes).max() == 15
    assert pack(Buffers(first, last, sizes)).arena_bytes == 10


@pytest.mark.parametrize(
    ("first", "last", "sizes", "options", "message"),
    [
        ([0], [0], [1], {}, "buffer 0: live from 0 to 0"),
        ([0], [1], [-1], {}, "buffer 0: .* -1 bytes"),
        ([0], [1, 2], [1], {}, "1 starts, 2 ends and 1 sizes"),
        ([0, 0], [1, 1], [2**62, 2**62], {}, "exceed"),
        ([0], [1], [1], {"alignment": 0}, "alignment 0"),
        ([0], [1], [1], {"work_limit": -1}, "work limit -1"),
    ],
)
def test_wrong_buffers_are_usage_errors(
    first: list[int], last: list[int], sizes: list[int], options: dict[str, int], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        slot_offsets(*(np.array(values, np.int64) for values in (first, last, sizes)), **options)
