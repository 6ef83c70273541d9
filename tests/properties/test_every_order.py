"""Simulator, native evaluation and verifier against brute force over all valid orders of small graphs."""

from itertools import islice, permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lowtide.core.errors import VerificationError
from lowtide.engine.analysis import simulate
from lowtide.engine.graph import Graph
from lowtide.engine.plan import Plan, verify
from tests.examples import examples
from tests.oracles.naive_player import order_peaks, play, valid_orders
from tests.oracles.plans import plan_of, problem_of
from tests.strategies import graphs

_MOST_ORDERS = 60


@examples(300)
@given(graphs(), st.booleans())
def test_evaluation_simulation_and_brute_force_agree_on_every_valid_order(graph: Graph, in_place: bool) -> None:
    problem = problem_of(graph, in_place=in_place)
    for order in islice(valid_orders(graph), _MOST_ORDERS):
        as_array = np.asarray(order, np.int32)
        evaluation, plan = problem.evaluate(as_array), problem.plan(as_array)
        wanted = order_peaks(graph, order, in_place=in_place)
        assert tuple(evaluation.peaks.tolist()) == wanted
        assert tuple(simulate(graph, plan).peak_bytes.values()) == wanted
        assert play(graph, list(plan.steps())) == wanted


@given(graphs())
def test_the_peak_place_of_an_evaluation_is_the_first_run_that_reaches_the_peak(graph: Graph) -> None:
    problem = problem_of(graph)
    for order in islice(valid_orders(graph), 5):
        evaluation = problem.evaluate(np.asarray(order, np.int32))
        plan = problem.plan(np.asarray(order, np.int32))
        runs = [step for step, kind in enumerate(plan.kinds.tolist()) if kind == 0]
        steps = simulate(graph, plan).peak_steps.values()
        places = evaluation.peak_places.tolist()
        assert [runs[place] if place >= 0 else -1 for place in places] == list(steps)


@given(graphs())
def test_the_verifier_accepts_the_plan_of_every_valid_order(graph: Graph) -> None:
    for order in islice(valid_orders(graph), _MOST_ORDERS):
        verify(graph, plan_of(graph, order), check_capacity=False)


@examples(300)
@given(graphs(max_ops=5))
def test_the_verifier_rejects_every_order_that_swaps_ops_which_do_not_commute(graph: Graph) -> None:
    valid = {tuple(order) for order in valid_orders(graph)}
    for order in permutations(range(graph.n_ops)):
        plan = Plan.from_order(graph, np.asarray(order, np.int32))
        if order in valid:
            verify(graph, plan)
        else:
            with pytest.raises(VerificationError):
                verify(graph, plan)


@given(graphs())
def test_an_order_is_valid_exactly_if_every_op_runs_after_its_predecessors(graph: Graph) -> None:
    predecessors = [set(row) for row in graph.structure.predecessors]

    def count(ran: frozenset[int]) -> int:
        ready = [op for op in range(graph.n_ops) if op not in ran and predecessors[op] <= ran]
        return sum(count(ran | {op}) for op in ready) if len(ran) < graph.n_ops else 1

    orders = list(islice(valid_orders(graph), 721))
    if len(orders) <= 720:
        assert count(frozenset()) == len(orders)
    for order in orders:
        assert all(predecessors[op] <= set(order[:place]) for place, op in enumerate(order))
