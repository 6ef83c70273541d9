"""A program that can be reordered, but not run by its framework here."""

from typing import NoReturn

import numpy as np
from numpy.typing import NDArray

from lowtide.core.errors import UnsupportedError
from lowtide.engine.costs import Prices
from lowtide.engine.graph import Graph
from lowtide.engine.plan import Plan, verify
from lowtide.frameworks.model import Measurement


class OrderOnly:
    """The base of models that can be planned and reordered, but not measured."""

    def __init__(self, graph: Graph, program: str) -> None:
        """`program` is its name in error messages, such as "a graph file"."""
        self._graph = graph
        self._program = program

    @property
    def graph(self) -> Graph:
        """The program as a graph."""
        return self._graph

    @property
    def in_chunks(self) -> None:
        """None: chunking is not supported."""
        return None

    @property
    def chunks_take_time(self) -> bool:
        """False: chunking is not supported."""
        return False

    def check_measurable(self) -> NoReturn:
        """Raise UnsupportedError, because there are no kernels."""
        raise UnsupportedError(f"{self._program} cannot be run or measured; leave out --measure")

    def measure(self, plan: Plan) -> Measurement:
        """Raise UnsupportedError, because there are no kernels."""
        self.check_measurable()

    def measure_costs(self) -> Prices:
        """Raise UnsupportedError, because there are no kernels."""
        raise UnsupportedError(f"{self._program} has no kernels to time; choose --costs eager or fused")

    def order_of(self, plan: Plan) -> NDArray[np.int32]:
        """Return the order of a plan that runs each op once.

        Raises PlanError for an invalid plan, UnsupportedError for one that recomputes ops.
        """
        verify(self._graph, plan, check_capacity=False)
        order = plan.order()
        if len(order) != self._graph.n_ops or len(np.unique(order)) != len(order):
            raise UnsupportedError(
                f"the plan recomputes ops, which {self._program} cannot express; write a plan file (.plan.json)"
            )
        return order
