"""Who holds memory at the peak: sums, and every word on graphs made by hand."""

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from lowtide.engine.analysis import simulate
from lowtide.engine.analysis.holders_at_peak import Holder, holders_at_peak
from lowtide.engine.graph import Graph, GraphBuilder, Lifetime
from lowtide.engine.plan import CopyIn, CopyOut, Free, Plan, Run
from tests.oracles.plans import problem_of
from tests.strategies import graphs, rematerializing_plan


def _assert_sums(graph: Graph, plan: Plan) -> None:
    holders = holders_at_peak(graph, plan)
    for space, peak in simulate(graph, plan).peak_bytes.items():
        sizes = [holder.size_bytes for holder in holders if holder.space == space]
        assert sum(sizes) == peak
        assert sizes == sorted(sizes, reverse=True)
        assert all(size > 0 for size in sizes)


@given(graphs())
def test_sizes_add_up_to_the_peak_of_every_space_largest_first(graph: Graph) -> None:
    problem = problem_of(graph)
    _assert_sums(graph, Plan.baseline(graph))
    _assert_sums(graph, problem.plan(problem.given_order()))


@given(graphs(), st.integers(0, 10**6))
def test_sizes_add_up_when_ops_run_twice_and_buffers_move(graph: Graph, seed: int) -> None:
    _assert_sums(graph, rematerializing_plan(graph, Random(seed)))


@given(graphs(), st.integers(0, 10**6))
def test_everything_but_a_buffer_nobody_uses_has_someone_who_keeps_it_alive(graph: Graph, seed: int) -> None:
    for plan in (Plan.baseline(graph), rematerializing_plan(graph, Random(seed))):
        for holder in holders_at_peak(graph, plan):
            assert holder.kept_alive_by or holder.last_use is None


def _network() -> Graph:
    """x -> up -> (act, four readers of up) -> out; the peak is at `act`, where x, up, act and scratch are live."""
    builder = GraphBuilder("network")
    weight = builder.add_buffer("weight", 1000, Lifetime.PERSISTENT)
    x = builder.add_buffer("x", 10, Lifetime.INPUT)
    gift = builder.add_buffer("gift", 20, Lifetime.DONATED)
    early = builder.add_buffer("early", 7, Lifetime.OUTPUT)
    up = builder.add_buffer("up", 100)
    act = builder.add_buffer("act", 90)
    builder.add_op("first", "split", reads=[x], writes=[early])
    builder.add_op("grow", "matmul", reads=[x, weight], writes=[up])
    builder.add_op("activate", "gelu", reads=[up], writes=[act], scratch_bytes=5)
    parts = [builder.add_buffer(f"part{k}", 1) for k in range(4)]
    for k, part in enumerate(parts):
        builder.add_op(f"reader{k}", "slice", reads=[up, act] if k == 0 else [up], writes=[part])
    out = builder.add_buffer("out", 1, Lifetime.OUTPUT)
    builder.add_op("join", "concat", reads=[*parts, gift], writes=[out])
    return builder.build()


def test_every_field_of_every_holder_is_right_on_a_graph_made_by_hand() -> None:
    graph = _network()

    def holder(name: str, size: int, lifetime: str, op: str | None, first: str | None, last: str, *kept: str) -> Holder:
        return Holder(
            space="device",
            name=name,
            size_bytes=size,
            lifetime=lifetime,
            op=op,
            first_use=first,
            last_use=last,
            kept_alive_by=kept,
            kind=None if op is None else dict(zip(graph.op_names, graph.op_kinds, strict=True))[op],
        )

    assert holders_at_peak(graph, Plan.baseline(graph)) == [
        holder("up", 100, "intermediate", "grow", "grow", "reader3", "activate", "reader0", "reader1", "2 more"),
        holder("act", 90, "intermediate", "activate", "activate", "reader0", "reader0"),
        holder("gift", 20, "donated", None, None, "join", "join"),
        holder("x", 10, "input", None, None, "grow", "the caller"),
        holder("early", 7, "output", "first", "first", "first", "output"),
        holder("scratch of activate", 5, "scratch", None, "activate", "activate", "activate"),
    ]


def test_a_result_that_nothing_reads_is_kept_by_the_op_that_is_writing_it() -> None:
    builder = GraphBuilder("unread")
    builder.add_op("make", "make", writes=[builder.add_buffer("unread", 8)])
    graph = builder.build()
    (holder,) = holders_at_peak(graph, Plan.baseline(graph))
    assert (holder.first_use, holder.last_use, holder.kept_alive_by) == ("make", "make", ("make",))


def test_an_op_that_mutates_a_buffer_at_the_peak_keeps_it_alive() -> None:
    builder = GraphBuilder("mutated")
    state = builder.add_buffer("state", 8, Lifetime.DONATED)
    builder.add_op("update", "add_", mutates=[state], scratch_bytes=1)
    graph = builder.build()
    assert holders_at_peak(graph, Plan.baseline(graph))[0].kept_alive_by == ("update",)


def test_inputs_that_peak_before_the_first_op_are_all_listed() -> None:
    builder = GraphBuilder("inputs")
    gift = builder.add_buffer("gift", 8, Lifetime.DONATED)
    builder.add_buffer("unused", 5, Lifetime.DONATED)
    builder.add_op("consume", "sum", reads=[gift])
    graph = builder.build()
    found = [(holder.name, holder.kept_alive_by) for holder in holders_at_peak(graph, Plan.baseline(graph))]
    assert found == [("gift", ("consume",)), ("unused", ())]


def test_uses_of_a_later_residency_do_not_keep_an_earlier_one_alive() -> None:
    builder = GraphBuilder("again")
    made, other = builder.add_buffer("made", 8), builder.add_buffer("other", 8)
    builder.add_op("make", "make", writes=[made])
    builder.add_op("near", "use", reads=[made], writes=[other], scratch_bytes=100)
    builder.add_op("far", "use", reads=[made])
    graph = builder.build()
    plan = Plan.from_steps(graph, [Run(0), Run(1), Free(made), Free(other), Run(0), Run(2), Free(made)])
    (holder,) = (holder for holder in holders_at_peak(graph, plan) if holder.name == "made")
    assert (holder.last_use, holder.kept_alive_by) == ("near", ("near",))


def test_a_buffer_that_hands_its_storage_on_is_kept_by_the_op_that_takes_it() -> None:
    builder = GraphBuilder("in place")
    made, taken = builder.add_buffer("made", 8), builder.add_buffer("taken", 8)
    builder.add_op("make", "make", writes=[made], scratch_bytes=1)
    builder.add_op("relu", "relu", reads=[made], writes=[taken], in_place=[(made, taken)])
    graph = builder.build()
    plan = Plan.from_steps(graph, [Run(0), Run(1, ((made, taken),)), Free(taken)])
    (holder, _) = holders_at_peak(graph, plan)
    assert (holder.name, holder.last_use, holder.kept_alive_by) == ("made", "relu", ("relu",))


def test_a_copy_in_another_space_names_its_buffer_and_claims_no_op_for_it() -> None:
    builder = GraphBuilder("offloaded")
    for space in ("device", "host"):
        builder.add_space(space)
    made = builder.add_buffer("made", 8)
    builder.add_op("make", "make", writes=[made])
    builder.add_op("use", "use", reads=[made])
    graph = builder.build()
    steps = [Run(0), CopyOut(made, 1), Free(made), CopyIn(made, 1), Free(made, 1), Run(1), Free(made)]
    at_home, away = holders_at_peak(graph, Plan.from_steps(graph, steps))
    assert (at_home.space, at_home.name, at_home.first_use) == ("device", "made", "make")
    assert (away.space, away.name, away.first_use, away.last_use) == ("host", "made", None, None)
