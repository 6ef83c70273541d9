"""A program that can be put into another order, but that nothing here can run."""

from typing import NoReturn

import numpy as np
from numpy.typing import NDArray

from lowtide.core.errors import UnsupportedError
from lowtide.engine.costs import Prices
from lowtide.engine.graph import Graph
from lowtide.engine.plan import Plan, verify
from lowtide.frameworks.model import Measurement


class OrderOnly:
    """What models of such programs have in common: they can be planned and reordered, not measured."""

    def __init__(self, graph: Graph, program: str) -> None:
        """`program` is what messages call it: "a graph file"."""
        self._graph = graph
        self._program = program

    @property
    def graph(self) -> Graph:
        """The program as a graph."""
        return self._graph

    @property
    def in_chunks(self) -> None:
        """None: nothing here says how to compute a part of a tensor."""
        return None

    @property
    def chunks_take_time(self) -> bool:
        """False: there are none."""
        return False

    def check_measurable(self) -> NoReturn:
        """Raise UnsupportedError: there are no kernels to run."""
        raise UnsupportedError(f"{self._program} cannot be run, so there is nothing to measure; leave out --measure")

    def measure(self, plan: Plan) -> Measurement:
        """Raise UnsupportedError: there are no kernels to run."""
        self.check_measurable()

    def measure_costs(self) -> Prices:
        """Raise UnsupportedError: there are no kernels to run."""
        raise UnsupportedError(f"{self._program} has no kernels to run; price it by a profile, --costs eager or fused")

    def order_of(self, plan: Plan) -> NDArray[np.int32]:
        """Return the order of a plan, each op once.

        Raises PlanError for a plan that is wrong for this graph, UnsupportedError for one that repeats ops.
        """
        verify(self._graph, plan, check_capacity=False)
        order = plan.order()
        if len(order) != self._graph.n_ops or len(np.unique(order)) != len(order):
            raise UnsupportedError(
                f"the plan runs some ops twice, which {self._program} cannot say; write a plan file (.plan.json)"
            )
        return order
