"""Plans as people and algorithms build them."""

import numpy as np
from hypothesis import given

from lowtide.engine.graph import Graph
from lowtide.engine.plan import CopyIn, CopyOut, Free, Plan, Run
from tests.golden.every_feature import every_feature_graph, every_feature_plan
from tests.oracles.naive_player import uses
from tests.oracles.plans import problem_of
from tests.strategies import graphs, random_graph


@given(graphs())
def test_a_plan_of_an_order_frees_every_freeable_buffer_once_right_after_its_last_use(graph: Graph) -> None:
    steps = list(Plan.baseline(graph).steps())
    last_use = {buffer: op for op in range(graph.n_ops) for buffer in uses(graph, op)}
    ran = -1
    freed: list[int] = []
    for step in steps:
        if isinstance(step, Run):
            assert step.op == ran + 1
            ran = step.op
        else:
            assert isinstance(step, Free)
            assert last_use.get(step.buffer, -1) == ran
            freed.append(step.buffer)
    existing = [b for b in range(graph.n_buffers) if graph.buffer(b).lifetime.exists_at_start or b in last_use]
    assert sorted(freed) == [b for b in existing if graph.buffer(b).lifetime.freeable]


@given(graphs())
def test_steps_and_arrays_say_the_same(graph: Graph) -> None:
    plan = problem_of(graph).plan(problem_of(graph).given_order())
    again = Plan.from_steps(graph, plan.steps())
    for one, two in ((plan.kinds, again.kinds), (plan.targets, again.targets), (plan.spaces, again.spaces)):
        assert np.array_equal(one, two)
    assert list(plan.pairs) == list(again.pairs)


def test_copies_keep_their_memory_space() -> None:
    graph = every_feature_graph()
    steps = list(every_feature_plan(graph).steps())
    assert CopyOut(4, 1) in steps
    assert CopyIn(4, 1) in steps
    assert Free(4, 1) in steps
    assert Free(4) in steps


def test_taken_pairs_are_listed_with_their_place_among_the_runs() -> None:
    graph = random_graph(seed=4, n_ops=400)
    problem = problem_of(graph)
    plan = problem.plan(problem.given_order())
    taken = [(op, read, written) for _, op, pairs in plan.taken_pairs() for read, written in pairs]
    assert taken
    assert sorted(taken) == sorted(map(tuple, problem.evaluate(problem.given_order()).pairs.tolist()))
    assert all(plan.order()[place] == op for place, op, _ in plan.taken_pairs())
