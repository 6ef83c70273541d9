"""Inductor's own test of its orders, exported: three orders, their peaks, its choice, and the best order."""

from pathlib import Path

import pytest

import lowtide
from lowtide.engine.analysis import Problem
from lowtide.engine.schedule import scheduler

FOO = Path(__file__).parent / "foo.json"
ORDERS = {
    "lpmf": (["op1", "op0", "op2", "op4", "op3", "op5", "op6_op7"], 172_048),
    "inductor-best": (["op1", "op0", "op2", "op4", "op3", "op5", "op6_op7"], 172_048),
    "bfs": (["op0", "op1", "op2", "op3", "op4", "op5", "op6_op7"], 180_228),
    "dfs": (["op0", "op2", "op4", "op1", "op3", "op5", "op6_op7"], 172_048),
}


@pytest.mark.parametrize("name", ORDERS)
def test_orders_and_peaks_are_those_of_inductor(name: str) -> None:
    graph = lowtide.read(FOO)
    problem = Problem(graph, in_place=False)
    order = scheduler(name).order(problem)
    assert ([graph.op_names[op] for op in order.tolist()], problem.evaluate(order).peaks.tolist()[0]) == ORDERS[name]


def test_the_best_order_needs_little_more_than_half_and_is_proven() -> None:
    result = lowtide.minimize(lowtide.read(FOO))
    assert result.peak_bytes["device"] == result.lower_bound_bytes["device"] == 98_320
    assert result.status == "optimal"
