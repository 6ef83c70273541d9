"""Test graphs of the published systems."""

from pathlib import Path

import numpy as np

from lowtide.engine.analysis import Problem
from lowtide.engine.analysis.problem import Order
from lowtide.engine.graph import Graph, read_graph_file
from lowtide.engine.schedule import scheduler

CASES = Path(__file__).parent.parent.parent / "data" / "cases"


def case(name: str) -> Graph:
    """Read a case."""
    return read_graph_file(CASES / f"{name}.graph.json")


def order_of(name: str, scheduler_name: str, *, in_place: bool = False) -> list[str]:
    """Return the op names of a case as a scheduler orders them."""
    graph = case(name)
    order = scheduler(scheduler_name).order(Problem(graph, in_place=in_place))
    return [graph.op_names[op] for op in order.tolist()]


def peak_of(name: str, scheduler_name: str, *, in_place: bool = False) -> int:
    """Return the peak of a scheduler's order of a case, in bytes."""
    problem = Problem(case(name), in_place=in_place)
    return int(problem.evaluate(scheduler(scheduler_name).order(problem)).peaks.sum())


def order_by_names(graph: Graph, names: list[str]) -> Order:
    """Return the order that runs ops by these names."""
    return np.array([graph.op_names.index(name) for name in names], np.int32)
