"""Memory while ops are fused: never less than what the fused program takes where it runs."""

from itertools import combinations

from hypothesis import assume, given
from hypothesis import strategies as st

import lowtide
from lowtide.engine.graph import Graph, GraphBuilder, Lifetime
from lowtide.frameworks.torch.compile.fusion.guard import FusionTimeline


@st.composite
def programs(draw: st.DrawFn) -> Graph:
    """Draw small programs in which every op writes one buffer."""
    builder = GraphBuilder("drawn")
    buffers = [builder.add_buffer("given", draw(st.integers(1, 9)), Lifetime.DONATED)]
    for op in range(draw(st.integers(2, 8))):
        reads = draw(st.lists(st.sampled_from(buffers), min_size=1, max_size=3, unique=True))
        lifetime = draw(st.sampled_from([Lifetime.INTERMEDIATE, Lifetime.INTERMEDIATE, Lifetime.OUTPUT]))
        buffers.append(builder.add_buffer(f"b{op}", draw(st.integers(1, 9)), lifetime))
        builder.add_op(f"op{op}", "op", reads=reads, writes=[buffers[-1]])
    return builder.build()


def peak_in_order(graph: Graph) -> int:
    """Return the peak of a program as it stands."""
    return max(lowtide.minimize(graph, allow=[]).peak_bytes.values())


def without_pair(graph: Graph, first: int, second: int, place: int) -> int | None:
    """Return the peak of a program in which two ops run as one at a place, None where that order is not valid."""
    order = [op for op in range(graph.n_ops) if op not in (first, second)]
    at = sum(op < place for op in order)
    within = {first, second}
    inner = {
        buffer
        for op in within
        for buffer in graph.writes[op].tolist()
        if graph.lifetimes[buffer] == Lifetime.INTERMEDIATE
        and all(user in within for user in graph.structure.users[buffer].tolist())
    }
    builder = GraphBuilder("fused")
    for buffer in range(graph.n_buffers):
        size = 0 if buffer in inner else int(graph.sizes[buffer])
        builder.add_buffer(graph.buffer_names[buffer], size, Lifetime(graph.lifetimes[buffer]))
    written = {0}
    for group in [*([op] for op in order[:at]), [first, second], *([op] for op in order[at:])]:
        made = [buffer for op in group for buffer in graph.writes[op].tolist()]
        reads = {buffer for op in group for buffer in graph.reads[op].tolist()} - set(made)
        if not reads <= written:
            return None
        written.update(made)
        builder.add_op("+".join(map(str, group)), "op", reads=sorted(reads), writes=made)
    return peak_in_order(builder.build())


@given(programs())
def test_before_any_fusion_it_is_the_program_s_own_memory(graph: Graph) -> None:
    """The timeline's peak is the peak of the program in its order."""
    assert FusionTimeline(graph, 0).peak_bytes == peak_in_order(graph)


@given(programs(), st.data())
def test_a_pair_that_is_allowed_fits_where_either_of_it_stands(graph: Graph, data: st.DataObject) -> None:
    """What is allowed within a capacity has an order of the fused program within it, and what is refused has none."""
    first, second = data.draw(st.sampled_from(list(combinations(range(graph.n_ops), 2))))
    peaks = [peak for place in (first, second) if (peak := without_pair(graph, first, second, place)) is not None]
    assume(peaks)
    capacity = data.draw(st.integers(peak_in_order(graph), peak_in_order(graph) + 12))
    fits = FusionTimeline(graph, capacity).fits([first], [second])
    assert fits == (min(peaks) <= capacity)


@given(programs(), st.data())
def test_fusing_is_remembered(graph: Graph, data: st.DataObject) -> None:
    """After a fusion the peak is what the fused program takes, where one of the two could stay."""
    first, second = data.draw(st.sampled_from(list(combinations(range(graph.n_ops), 2))))
    peaks = [peak for place in (first, second) if (peak := without_pair(graph, first, second, place)) is not None]
    assume(peaks)
    timeline = FusionTimeline(graph, 10**6)
    timeline.fuse([first, second])
    assert timeline.peak_bytes in peaks
    assert timeline.fits([first], [second])


def test_what_would_move_others_counts_as_alive_all_the_way() -> None:
    """Where users stand between two ops, everything that both touch is kept from the one to the other."""
    builder = GraphBuilder("between")
    given_, a, b, c = (builder.add_buffer(name, 10, Lifetime.INTERMEDIATE) for name in ("given", "a", "b", "c"))
    builder.add_op("make", "op", writes=[given_])
    builder.add_op("first", "op", reads=[given_], writes=[a])
    builder.add_op("user", "op", reads=[a], writes=[b])
    builder.add_op("second", "op", reads=[b], writes=[c])
    graph = builder.build()
    assert not FusionTimeline(graph, 20).fits([1], [3])
    assert FusionTimeline(graph, 60).fits([1], [3])


def test_what_a_later_loop_reads_is_stored() -> None:
    """A fused kernel reads its first op's result again once its reduction is done: the result lies in memory."""
    builder = GraphBuilder("softmax")
    given_rows = builder.add_buffer("rows", 100, Lifetime.DONATED)
    shifted = builder.add_buffer("shifted", 100)
    total = builder.add_buffer("total", 1)
    scaled = builder.add_buffer("scaled", 100, Lifetime.OUTPUT)
    builder.add_op("shift", "op", reads=[given_rows], writes=[shifted])
    builder.add_op("sum", "op", reads=[shifted], writes=[total])
    builder.add_op("scale", "op", reads=[shifted, total], writes=[scaled])
    graph = builder.build()
    peaks: list[int] = []
    for loops in ((), (1,)):
        timeline = FusionTimeline(graph, 1000, loops)
        timeline.fuse([0, 1, 2])
        peaks.append(timeline.peak_bytes)
    assert peaks == [200, 300]
