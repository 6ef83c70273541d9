"""The public names for JAX."""

from typing import Any

from lowtide.engine.graph import Graph
from lowtide.engine.plan import Plan
from lowtide.engine.planning.measured import Measurement
from lowtide.frameworks.jax.explain import Donation, FunctionPeak, explain, suggest_donation
from lowtide.frameworks.jax.fitting.fit import FittedFunction, fit
from lowtide.frameworks.jax.fitting.measured import MeasuredFunction, measure_compiled
from lowtide.frameworks.jax.model import JaxModel

__all__ = [
    "Donation",
    "FittedFunction",
    "FunctionPeak",
    "JaxModel",
    "MeasuredFunction",
    "apply",
    "explain",
    "fit",
    "measure",
    "measure_compiled",
    "read",
    "suggest_donation",
]


def read(program: Any) -> Graph:
    """Read a tuple (function, example arguments) or a ClosedJaxpr into a graph; see `JaxModel`."""
    return JaxModel(program).graph


def apply(plan: Plan, program: Any) -> Any:
    """Return a function of the same signature that follows a plan; see `JaxModel.apply`."""
    return JaxModel(program).apply(plan)


def measure(plan: Plan, program: Any) -> Measurement:
    """Run the unmodified and the planned function kernel by kernel; see `JaxModel.measure`."""
    return JaxModel(program).measure(plan)
