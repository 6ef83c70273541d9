"""The event simulation: when steps happen, what waits for what, and what a plan takes."""

from dataclasses import replace
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lowtide.core.errors import GraphError
from lowtide.engine.analysis import simulate
from lowtide.engine.analysis.live_ranges import live_ranges
from lowtide.engine.costs import Prices
from lowtide.engine.graph import Graph, GraphBuilder, Lifetime
from lowtide.engine.plan import CopyIn, CopyOut, Free, Plan, Run, Step, StepKind, verify
from lowtide.engine.timeline import COMPUTE, Timeline, play_timeline
from tests.examples import examples
from tests.oracles.random_plans import random_order, random_plan
from tests.oracles.timeline import busy_seconds, instants
from tests.strategies import graphs

_seeds = st.integers(0, 10**6)


def _chain(*, bandwidth: dict[str, float] | None = None) -> Graph:
    """Return x -> a -> b -> c -> d, d reading x's product again; ops take 1 s, buffers hold 100 bytes."""
    builder = GraphBuilder("chain")
    builder.add_space("device", bandwidth_bytes_per_s={"host": 100.0} if bandwidth is None else bandwidth)
    builder.add_space("host", bandwidth_bytes_per_s={"device": 50.0})
    names = ["a", "b", "c", "d"]
    buffers = [builder.add_buffer(name, 100) for name in names]
    builder.set_lifetime(buffers[-1], Lifetime.OUTPUT)
    for place, name in enumerate(names):
        reads = buffers[place - 1 : place] + (buffers[:1] if name == "d" else [])
        builder.add_op(name, "op", reads=reads, writes=[buffers[place]])
    return builder.build()


def _timeline_of(steps: list[Step], **options: dict[str, float]) -> tuple[list[float], list[float], float]:
    graph = _chain(**options)
    plan = Plan.from_steps(graph, steps)
    verify(graph, plan)
    timeline = play_timeline(graph, plan)
    return timeline.starts.tolist(), timeline.stalls.tolist(), timeline.seconds


OFFLOAD = [Run(0), CopyOut(0, 1), Run(1), Free(0), CopyIn(0, 1), Run(2), Free(1), Run(3), Free(0, 1), Free(0), Free(2)]


def test_a_copy_runs_beside_compute_and_the_run_that_reads_it_waits() -> None:
    """Out in 1 s beside b; back in 2 s beside c, which takes 1: d waits 1 s."""
    starts, stalls, seconds = _timeline_of(OFFLOAD)
    assert starts == [0, 1, 1, 2, 2, 2, 3, 4, 5, 5, 5]
    assert stalls == [0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0]
    assert seconds == 5


def test_a_free_waits_for_the_copy_of_what_it_frees_and_the_program_with_it() -> None:
    steps = [Run(0), CopyOut(0, 1), Run(1), Free(0), Run(2), Free(1), CopyIn(0, 1), Run(3)]
    steps += [Free(0, 1), Free(0), Free(2)]
    starts, stalls, seconds = _timeline_of(steps, bandwidth={"host": 40.0})
    assert starts[:8] == [0, 1, 1, 3.5, 3.5, 4.5, 4.5, 6.5]
    assert stalls[3] == 1.5
    assert stalls[7] == 2
    assert seconds == 7.5


def test_hidden_seconds_are_the_transfer_time_that_overlaps_compute() -> None:
    graph = _chain()
    timeline = play_timeline(graph, Plan.from_steps(graph, OFFLOAD))
    assert timeline.hidden_seconds == 2
    assert timeline.stall_seconds == 1
    assert timeline.extra_seconds == 1
    assert busy_seconds(timeline) == {"compute": 4, "device -> host": 1, "host -> device": 2}
    assert timeline.profile == "given"


def test_a_copy_waits_for_its_source_and_a_free_for_the_last_copy_of_several() -> None:
    """The buffer goes to the host in 1 s and comes back in 2; on to the disk in 4, and to the host again in 1."""
    builder = GraphBuilder("three spaces")
    builder.add_space("device", bandwidth_bytes_per_s={"host": 100.0, "disk": 25.0})
    builder.add_space("host", bandwidth_bytes_per_s={"device": 50.0})
    builder.add_space("disk")
    a = builder.add_buffer("a", 100)
    builder.add_op("a", "op", writes=[a])
    graph = builder.build()
    steps = [Run(0), CopyOut(a, 1), Free(a), CopyIn(a, 1), CopyOut(a, 2), Free(a, 1), CopyOut(a, 1), Free(a)]
    plan = Plan.from_steps(graph, steps)
    verify(graph, plan)
    timeline = play_timeline(graph, plan)
    assert timeline.streams == ("compute", "device -> host", "host -> device", "device -> disk")
    assert timeline.starts.tolist() == [0, 1, 2, 2, 4, 4, 4, 8]
    assert timeline.stalls.tolist() == [0, 0, 1, 0, 0, 2, 0, 4]
    assert timeline.seconds == 8


def test_a_copy_between_spaces_without_a_bandwidth_is_refused() -> None:
    graph = _chain(bandwidth={})
    with pytest.raises(GraphError, match="no bandwidth_bytes_per_s to 'host', where step 1"):
        play_timeline(graph, Plan.from_steps(graph, OFFLOAD))


def test_prices_replace_the_costs_of_the_graph_and_name_their_profile() -> None:
    graph = _chain()
    prices = Prices(profile="measured", seconds=np.array([1.0, 2.0, 4.0, 8.0]))
    timeline = play_timeline(graph, Plan.baseline(graph), prices)
    assert (timeline.profile, timeline.seconds, timeline.extra_seconds) == ("measured", 15, 0)


def test_a_rerun_inside_a_callee_is_paid_by_every_op_that_calls_it() -> None:
    inner = GraphBuilder("inner")
    y = inner.add_buffer("y", 8, Lifetime.OUTPUT)
    inner.add_op("once", "op", writes=[y], cost=3.0)
    outer = GraphBuilder("outer")
    outer.add_subgraph("inner", inner.build())
    for name in ("one", "two"):
        outer.add_op(name, "call", callees=["inner"], cost=3.0)
    graph = outer.build()
    twice = Plan.from_steps(graph.subgraphs["inner"], [Run(0), Run(0)])
    plan = replace(Plan.baseline(graph), callees={"inner": twice})
    verify(graph, plan)
    timeline = play_timeline(graph, plan)
    assert (timeline.seconds, timeline.extra_seconds) == (12, 6)
    priced = Prices(profile="measured", seconds=graph.cost, callees={"inner": Prices(profile="", seconds=np.ones(1))})
    assert play_timeline(graph, plan, priced).extra_seconds == 2


@given(graphs(), _seeds)
def test_another_order_without_copies_takes_exactly_as_long_as_the_program(graph: Graph, seed: int) -> None:
    order = np.asarray(random_order(graph, Random(seed)), np.int32)
    timeline = play_timeline(graph, Plan.from_order(graph, order))
    assert (timeline.extra_seconds, timeline.stall_seconds, timeline.hidden_seconds) == (0, 0, 0)
    assert timeline.seconds == play_timeline(graph, Plan.baseline(graph)).seconds


@examples(300)
@given(graphs(12), _seeds, st.booleans())
def test_every_step_happens_when_the_naive_simulation_says(graph: Graph, seed: int, apart: bool) -> None:
    plan = random_plan(graph, Random(seed))
    verify(graph, plan, check_capacity=False)
    steps = list(plan.steps())
    naive = instants(graph, steps, collectives_apart=apart)
    timeline = play_timeline(graph, plan, collectives_apart=apart)
    np.testing.assert_allclose(timeline.starts, [when.start for when in naive], rtol=1e-12)
    np.testing.assert_allclose(timeline.ends, [when.end for when in naive], rtol=1e-12)
    blocking = (timeline.step_streams <= COMPUTE).tolist()
    waits = [(when.start - when.reached) * counts for when, counts in zip(naive, blocking, strict=True)]
    np.testing.assert_allclose(timeline.stalls, waits, rtol=1e-12, atol=1e-12)
    assert timeline.seconds == pytest.approx(max((when.end for when in naive), default=0.0))


@examples(300)
@given(graphs(12), _seeds, st.booleans())
def test_streams_never_do_two_things_at_once_and_add_up(graph: Graph, seed: int, apart: bool) -> None:
    timeline = play_timeline(graph, random_plan(graph, Random(seed)), collectives_apart=apart)
    for stream in range(len(timeline.streams)):
        here = timeline.step_streams == stream
        assert (timeline.starts[here][1:] >= timeline.ends[here][:-1]).all()
    beside = sum(busy for name, busy in busy_seconds(timeline).items() if name != timeline.streams[COMPUTE])
    copies = beside - timeline.collective_seconds
    assert -1e-9 <= timeline.hidden_seconds <= copies + 1e-9
    assert -1e-9 <= timeline.exposed_seconds <= timeline.collective_seconds + 1e-9
    assert timeline.seconds == pytest.approx(timeline.compute_seconds + timeline.stall_seconds)
    # what is not hidden keeps the program waiting, unless two streams keep it waiting together
    assert timeline.stall_seconds <= copies - timeline.hidden_seconds + timeline.exposed_seconds + 1e-9
    assert timeline.stall_seconds >= timeline.exposed_seconds - 1e-9


@examples(300)
@given(graphs(12), _seeds)
def test_memory_over_time_never_exceeds_what_the_steps_say(graph: Graph, seed: int) -> None:
    """Even when a buffer that leaves stays until its copy is done, and one that comes back is live from the start of
    its copy: at no instant are more bytes live than the simulator sees at the plan's peak."""
    plan = random_plan(graph, Random(seed))
    timeline = play_timeline(graph, plan)
    ranges = live_ranges(graph, plan)
    for space, peak in enumerate(simulate(graph, plan).peak_bytes.values()):
        changes: list[tuple[float, int]] = []
        for row in np.flatnonzero(ranges.spaces == space).tolist():
            buffer, first, last = (int(each[row]) for each in (ranges.buffers, ranges.first_steps, ranges.last_steps))
            size = graph.buffer(buffer).size_bytes
            there = float(timeline.starts[first]) if first else 0.0
            changes += [(there, size), (_gone_at(plan, timeline, buffer, last), -size)]
        live = 0
        for _, change in sorted(changes):
            live += change
            assert live <= peak


@examples(300)
@given(graphs(12), _seeds)
def test_nothing_is_freed_or_overwritten_while_a_copy_reads_or_writes_it(graph: Graph, seed: int) -> None:
    plan = random_plan(graph, Random(seed))
    timeline = play_timeline(graph, plan)
    copied_until: dict[tuple[int, int], float] = {}
    for step, start, end in zip(plan.steps(), timeline.starts, timeline.ends, strict=True):
        if isinstance(step, CopyIn | CopyOut):
            home = graph.buffer(step.buffer).space
            copied_until |= dict.fromkeys([(step.buffer, home), (step.buffer, step.space)], float(end))
        elif isinstance(step, Free):
            assert copied_until.get((step.buffer, _freed_in(graph, step)), 0.0) <= end
        else:
            for buffer in (*graph.op(step.op).writes, *graph.op(step.op).mutates, *(read for read, _ in step.pairs)):
                assert copied_until.get((buffer, graph.buffer(buffer).space), 0.0) <= start


def _freed_in(graph: Graph, step: Free) -> int:
    """Return the space that a free names, or the buffer's home."""
    return graph.buffer(step.buffer).space if step.space is None else step.space


def _gone_at(plan: Plan, timeline: Timeline, buffer: int, last: int) -> float:
    """Return when a residency that ends at a step is gone: when its free is done, when a run takes its storage over,
    or when the rerun before that step has replaced it."""
    if last == plan.n_steps:
        return float("inf")
    if plan.kinds[last] == StepKind.FREE and plan.targets[last] == buffer:
        return float(timeline.ends[last])
    if buffer in plan.pairs[last].tolist()[::2]:
        return float(timeline.starts[last])
    return float(timeline.ends[last - 1])
