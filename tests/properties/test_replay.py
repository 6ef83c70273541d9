"""Plans run on real arrays: what the verifier accepts computes, bit for bit, what the program computes."""

from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lowtide.core.errors import VerificationError
from lowtide.engine.graph import Graph, GraphBuilder, Lifetime, read_graph_file
from lowtide.engine.plan import CopyIn, CopyOut, Free, Plan, Run, Step, verify
from tests.examples import examples
from tests.oracles.plans import claim
from tests.oracles.random_plans import random_plan
from tests.oracles.replay import replay
from tests.strategies import graphs, random_graph

_seeds = st.integers(0, 10**6)
_DATA = Path(__file__).parents[1] / "data"


@examples(500)
@given(graphs(16), _seeds)
def test_a_plan_that_is_accepted_leaves_behind_what_the_program_leaves_behind(graph: Graph, seed: int) -> None:
    plan = random_plan(graph, Random(seed))
    verify(graph, plan, check_capacity=False)
    assert replay(graph, plan) == replay(graph, Plan.baseline(graph))


@examples(300)
@given(graphs(16), _seeds)
def test_at_its_addresses_a_plan_leaves_the_same_behind(graph: Graph, seed: int) -> None:
    plan = claim(graph, random_plan(graph, Random(seed)))
    verify(graph, plan, check_capacity=False)
    baseline = claim(graph, Plan.baseline(graph))
    assert replay(graph, plan, at_addresses=True) == replay(graph, baseline, at_addresses=True)


@pytest.mark.parametrize("seed", range(4))
def test_large_plans_with_reruns_and_copies_replay(seed: int) -> None:
    graph = random_graph(seed, 1000)
    plan = random_plan(graph, Random(seed))
    verify(graph, plan, check_capacity=False)
    assert replay(graph, plan) == replay(graph, Plan.baseline(graph))


def test_a_real_training_step_replays_with_reruns() -> None:
    graph = read_graph_file(_DATA / "graphs" / "unet_plain_b4.step.graph.json.gz")
    plan = random_plan(graph, Random(1))
    assert len(plan.order()) > graph.n_ops
    assert replay(graph, plan) == replay(graph, Plan.baseline(graph))


@examples(300)
@given(graphs(10), _seeds)
def test_what_leaves_something_else_behind_is_rejected(graph: Graph, seed: int) -> None:
    """The verifier against real arrays: of plans with a few steps moved, dropped or repeated, none that computes
    something else passes."""
    random = Random(seed)
    steps = list(random_plan(graph, random).steps())
    expected = replay(graph, Plan.baseline(graph))
    for _ in range(5 if steps else 0):
        broken = list(steps)
        match random.randrange(3):
            case 0:
                del broken[random.randrange(len(broken))]
            case 1:
                broken.insert(random.randrange(len(broken)), broken.pop(random.randrange(len(broken))))
            case _:
                broken.insert(random.randrange(len(broken)), random.choice(broken))
        plan = Plan.from_steps(graph, broken)
        if replay(graph, plan) != expected:
            with pytest.raises(VerificationError):
                verify(graph, plan, check_capacity=False)


def _program() -> Graph:
    """Return x -> a -> b -> y (reads a again), then x is mutated; a random and an ordered pair of ops besides."""
    builder = GraphBuilder("program")
    builder.add_space("device")
    builder.add_space("host")
    x = builder.add_buffer("x", 8, Lifetime.INPUT)
    a, b = builder.add_buffer("a", 8), builder.add_buffer("b", 8)
    y, noise = builder.add_buffer("y", 8, Lifetime.OUTPUT), builder.add_buffer("noise", 8, Lifetime.OUTPUT)
    builder.add_op("a", "op", reads=[x], writes=[a])
    builder.add_op("b", "op", reads=[a], writes=[b], in_place=[(a, b)])
    builder.add_op("y", "op", reads=[a, b], writes=[y])
    builder.add_op("update", "op", mutates=[x], pure=False)
    builder.add_op("noise", "op", writes=[noise], pure=False)
    builder.add_op("first", "op", ordered=True)
    builder.add_op("second", "op", ordered=True)
    return builder.build()


_TAIL: list[Step] = [Run(3), Run(4), Run(5), Run(6)]
_BROKEN: dict[str, list[Step]] = {
    "freed too early": [Run(0), Run(1), Free(1), Run(2), *_TAIL],
    "pair taken though the read buffer is needed later": [Run(0), Run(1, ((1, 2),)), Run(2), *_TAIL],
    "written too late": [Run(0), Run(2), Run(1), *_TAIL],
    "mutated before its reader": [Run(3), Run(0), Run(1), Run(2), *_TAIL[1:]],
    "rerun after a mutation": [Run(0), Run(1), Free(1), Run(3), Run(0), Run(2), *_TAIL[1:]],
    "mutation twice": [Run(0), Run(1), Run(2), Run(3), *_TAIL],
    "random op twice": [Run(0), Run(1), Run(2), Run(3), Run(4), *_TAIL[1:]],
    "ordered ops swapped": [Run(0), Run(1), Run(2), Run(3), Run(4), Run(6), Run(5)],
    "not copied out": [Run(0), Run(1), Free(1), CopyIn(1, 1), Run(2), *_TAIL],
    "not copied in": [Run(0), CopyOut(1, 1), Run(1), Free(1), Run(2), *_TAIL],
    "copied out too early": [CopyOut(1, 1), Run(0), Run(1), Free(1), CopyIn(1, 1), Run(2), *_TAIL],
    "stale copy brought back": [CopyOut(0, 1), Run(0), Run(1), Run(2), Run(3), Free(0), CopyIn(0, 1), *_TAIL[1:]],
    "output freed": [Run(0), Run(1), Run(2), Free(3), *_TAIL],
    "op left out": [Run(0), Run(1), Run(2), *_TAIL[:-1]],
}


@pytest.mark.parametrize("name", _BROKEN)
def test_a_broken_plan_leaves_something_else_behind(name: str) -> None:
    graph = _program()
    plan = Plan.from_steps(graph, _BROKEN[name])
    assert replay(graph, plan) != replay(graph, Plan.baseline(graph))
    with pytest.raises(VerificationError):
        verify(graph, plan)


def test_buffers_that_overlap_in_memory_are_seen_at_their_addresses() -> None:
    graph = _program()
    good = claim(graph, Plan.baseline(graph))
    moved = [replace(row, offset=0) if row.buffer in (1, 2) else row for row in good.addresses]
    bad = replace(good, addresses=tuple(moved))
    assert replay(graph, good, at_addresses=True) != replay(graph, bad, at_addresses=True)
