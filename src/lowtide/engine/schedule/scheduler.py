"""What every scheduler offers."""

from typing import Protocol

from lowtide.engine.analysis import Problem
from lowtide.engine.analysis.problem import Order


class Scheduler(Protocol):
    """Finds an order for the ops of a graph.

    Implementations are frozen dataclasses of their settings: the same problem always gives the same order.
    """

    def order(self, problem: Problem) -> Order:
        """Return all ops of `problem.graph`, each once, in a valid topological order: int32, shape (ops,)."""
        ...
