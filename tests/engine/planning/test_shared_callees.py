"""Graphs that many others call are bounded, proven, planned and written once, however many ways lead to them."""

import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType

import pytest

from lowtide import minimize, read_plan_file, write_plan_file
from lowtide.engine.analysis import Problem
from lowtide.engine.analysis.lower_bounds import lower_bounds
from lowtide.engine.graph import Graph, GraphBuilder, Lifetime
from lowtide.engine.schedule import scheduler
from lowtide.engine.schedule.candidate import plan_graph
from lowtide.engine.search import check_proof
from lowtide.reporting.inspection import Inspection


def _level(number: int, callees: dict[str, Graph]) -> Graph:
    """Two branches that grow and shrink, better one after the other; each calls one of the next level."""
    builder = GraphBuilder(f"level {number}")
    for name, callee in callees.items():
        builder.add_subgraph(name, callee)
    x = builder.add_buffer("x", 10 + number, Lifetime.INPUT)
    big = [builder.add_buffer(f"big{k}", 100 + k) for k in range(2)]
    small = [builder.add_buffer(f"small{k}", 10) for k in range(2)]
    out = builder.add_buffer("out", 10, Lifetime.OUTPUT)
    called: list[list[str]] = [[name] for name in callees] or [[], []]
    for k in range(2):
        builder.add_op(f"grow{k}", "grow", reads=[x], writes=[big[k]], callees=called[k])
    for k in range(2):
        builder.add_op(f"shrink{k}", "shrink", reads=[big[k]], writes=[small[k]])
    builder.add_op("join", "join", reads=small, writes=[out])
    return builder.build()


def _levels(count: int, *, shared: bool = True) -> Graph:
    """Return a graph that calls two of the next level, and so on: all the same graph, or each one of its own."""

    def build(number: int) -> Graph:
        if number == count - 1:
            return _level(number, {})
        one = build(number + 1)
        other = one if shared else build(number + 1)
        return _level(number, {f"left{number}": one, f"right{number}": other})

    return build(0)


def _calls(work: Callable[[Graph], object], graph: Graph) -> int:
    """Count the calls of lowtide's functions while it works on a graph."""
    count = 0

    def look(frame: FrameType, event: str, _argument: object) -> None:
        nonlocal count
        count += event == "call" and "/lowtide/" in frame.f_code.co_filename

    before = sys.getprofile()
    sys.setprofile(look)
    try:
        work(graph)
    finally:
        sys.setprofile(before)
    return count


def _write(graph: Graph) -> None:
    write_plan_file(plan_graph(graph, scheduler("lpmf")), Path("p.plan.json"), graph)


WORKS: dict[str, Callable[[Graph], object]] = {
    "bounds": lambda graph: lower_bounds(problem := Problem(graph), [problem.given_order()]),
    "a plan and its proof": minimize,
    "a plan of reruns": lambda graph: minimize(graph, budget="90%", allow={"reorder", "share", "recompute"}),
    "an inspection": lambda graph: Inspection.of(graph, in_place=True),
    "a plan file": _write,
}


@pytest.mark.parametrize("what", WORKS)
def test_two_more_levels_take_as_much_more_as_the_two_before(
    what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With every way walked they would take four times as much."""
    monkeypatch.chdir(tmp_path)
    WORKS[what](_levels(3))  # what is loaded or made once is not counted below
    four, six, eight = (_calls(WORKS[what], _levels(count)) for count in (4, 6, 8))
    assert eight - six < 1.5 * (six - four)


def test_a_proof_holds_every_graph_once_and_checking_it_goes_through_each_once() -> None:
    graph = _levels(16)
    proof = minimize(graph).proof
    assert proof is not None
    assert len(proof.callees) == 30
    assert not any(inner.callees for inner in proof.callees.values())
    assert _calls(lambda graph: check_proof(graph, proof), graph) < 10_000


def test_shared_or_not_the_bound_the_proof_and_the_plan_are_the_same(tmp_path: Path) -> None:
    shared, separate = (minimize(_levels(4, shared=way)) for way in (True, False))
    assert shared.lower_bound_bytes == separate.lower_bound_bytes
    assert shared.proof == separate.proof
    files = []
    for way in (True, False):
        graph = _levels(4, shared=way)
        files.append(tmp_path / f"{way}.plan.json")
        write_plan_file(plan_graph(graph, scheduler("lpmf")), files[-1], graph)
        assert read_plan_file(files[-1], graph).callees
    assert files[0].read_bytes() == files[1].read_bytes()
