"""Called graphs are planned first, and their peaks count in their callers."""

import numpy as np
import pytest

from lowtide.engine.analysis import Problem, simulate
from lowtide.engine.graph import Graph, GraphBuilder, Lifetime
from lowtide.engine.schedule import plan_graph, scheduler, scheduler_names


def _wasteful(name: str, *, calls: str | None = None, subgraph: Graph | None = None) -> Graph:
    """Return a graph that needs 21 bytes in program order and 12 in the best order."""
    builder = GraphBuilder(name)
    if calls and subgraph:
        builder.add_subgraph(calls, subgraph)
    large = [builder.add_buffer(f"large{k}", 10) for k in range(2)]
    small = [builder.add_buffer(f"small{k}", 1) for k in range(2)]
    root = builder.add_buffer("root", 1, Lifetime.OUTPUT)
    for buffer in large:
        builder.add_op(f"make{buffer}", "make", writes=[buffer])
    for k in range(2):
        builder.add_op(f"reduce{k}", "reduce", reads=[large[k]], writes=[small[k]])
    builder.add_op("join", "call" if calls else "join", reads=small, writes=[root], callees=[calls] if calls else [])
    return builder.build()


def test_every_level_of_calls_is_scheduled_inside_out() -> None:
    inner = _wasteful("inner")
    middle = _wasteful("middle", calls="inner", subgraph=inner)
    outer = _wasteful("outer", calls="middle", subgraph=middle)

    given = plan_graph(outer, scheduler("given"))
    planned = plan_graph(outer, scheduler("xla-best"))

    assert given.peak_bytes == {"device": 2 + 2 + 21}
    assert planned.callees["middle"].callees["inner"].peak_bytes == {"device": 12}
    assert planned.callees["middle"].peak_bytes == {"device": 2 + 12}
    assert planned.peak_bytes == {"device": 2 + 2 + 12}


def test_a_graph_called_twice_is_scheduled_once() -> None:
    scheduled: list[str] = []

    class Counting:
        def order(self, problem: Problem) -> np.ndarray:
            scheduled.append(problem.graph.name)
            return problem.given_order()

    inner = _wasteful("inner")
    builder = GraphBuilder("outer")
    builder.add_subgraph("inner", inner)
    for k in range(3):
        out = builder.add_buffer(f"out{k}", 1, Lifetime.OUTPUT)
        builder.add_op(f"call{k}", "call", writes=[out], callees=["inner"])
    plan = plan_graph(builder.build(), Counting())

    assert scheduled == ["inner", "outer"]
    assert list(plan.callees) == ["inner"]


@pytest.mark.parametrize("name", scheduler_names())
@pytest.mark.parametrize("in_place", [False, True])
def test_the_peak_a_plan_claims_is_the_simulated_one(name: str, in_place: bool) -> None:
    graph = _wasteful("outer", calls="inner", subgraph=_wasteful("inner"))
    plan = plan_graph(graph, scheduler(name), in_place=in_place)
    assert plan.peak_bytes == simulate(graph, plan).peak_bytes


def test_xla_list_delays_an_op_for_the_peak_of_its_callee() -> None:
    """Without its callee, `call` would free as much as `plain` and, being newer, run first."""
    builder = GraphBuilder("outer")
    builder.add_subgraph("inner", _wasteful("inner"))
    outs = [builder.add_buffer(f"out{k}", 1, Lifetime.OUTPUT) for k in range(2)]
    builder.add_op("plain", "op", writes=[outs[0]])
    builder.add_op("call", "call", writes=[outs[1]], callees=["inner"])
    assert plan_graph(builder.build(), scheduler("xla-list")).order().tolist() == [0, 1]
