"""The program as it stands."""

from dataclasses import dataclass

from lowtide.engine.analysis import Problem
from lowtide.engine.analysis.problem import Order


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """Keep the program order.

    Source: Mesh-TensorFlow's method NAIVE and XLA's trivial scheduler. Complexity: O(n).
    """

    def order(self, problem: Problem) -> Order:
        """Return the program order."""
        return problem.given_order()
