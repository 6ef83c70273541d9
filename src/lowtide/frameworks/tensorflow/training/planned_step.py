"""A training step of Keras under a plan: planned once for each form of batch, then called like a function."""

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from lowtide.core.effort import EffortName
from lowtide.core.errors import UsageError
from lowtide.core.units import format_bytes
from lowtide.engine.graph import Graph
from lowtide.engine.planning.budget import GivenBudget
from lowtide.engine.planning.find_plan import find_plan
from lowtide.engine.planning.measured import Measurement
from lowtide.engine.planning.result import Result
from lowtide.engine.planning.settings import PlanSettings
from lowtide.frameworks.tensorflow.executor import executor_plan, is_worth_its_edges
from lowtide.frameworks.tensorflow.model import TensorflowModel
from lowtide.frameworks.tensorflow.running.functions import function_like
from lowtide.frameworks.tensorflow.running.session import tensorflow
from lowtide.frameworks.tensorflow.training.trace import traced_step
from lowtide.reporting.shortfall import describe

_MEANS = frozenset({"reorder", "share", "recompute"})
_Form = tuple[tuple[Any, ...], ...]


@dataclass(frozen=True, slots=True, eq=False)
class _PlannedForm:
    model: TensorflowModel
    result: Result
    is_planned: bool
    run: Callable[[Sequence[Any]], list[Any]]


class KerasStep:
    """A training step that recomputes as planned; call it with a batch, it updates the model and returns the loss."""

    def __init__(self, model: Any, optimizer: Any, loss: Any, budget: GivenBudget, effort: EffortName) -> None:
        self._model, self._optimizer, self._loss = model, optimizer, loss
        self._budget: GivenBudget = budget
        self._effort: EffortName = effort
        self._programs: dict[_Form, _PlannedForm] = {}
        self._last: _PlannedForm | None = None

    @property
    def result(self) -> Result:
        """What planning found for the last call's form of batch; raises UsageError before the first call."""
        return self._program.result

    @property
    def graph(self) -> Graph:
        """The graph of the last call's form of batch; raises UsageError before the first call."""
        return self._program.model.graph

    @property
    def is_planned(self) -> bool:
        """Whether the last call ran under its plan.

        It did not where TensorFlow, left to itself, keeps the budget by a simulation of its executor, or needs hardly
        more than the best order. Raises UsageError before the first call.
        """
        return self._program.is_planned

    def __call__(self, x: Any, y: Any) -> Any:
        """Train on a batch, and return the loss; a batch of another form is traced and planned anew."""
        tf = tensorflow()
        batch = tf.nest.map_structure(tf.convert_to_tensor, (x, y))
        tensors = tf.nest.flatten(batch)
        form = tuple((tuple(tensor.shape), tensor.dtype) for tensor in tensors)
        if form not in self._programs:
            self._programs[form] = self._program_for(batch)
        self._last = self._programs[form]
        return self._last.run(tensors)[0]

    def measure(self) -> Measurement:
        """Run the step of the last call's form as it stands and under its plan, on made-up contents; no state changes.

        The peaks are those of `TensorflowModel.measure`. Raises UsageError before the first call.
        """
        program = self._program
        return program.model.measure(program.result.plan)

    def resident_bytes(self, *, planned: bool = True) -> int:
        """Return by how much the step raises the resident memory of a process of its own, under its plan or without.

        See `TensorflowModel.resident_bytes`. Raises UsageError before the first call.
        """
        program = self._program
        return program.model.resident_bytes(program.result.plan if planned else None)

    @property
    def _program(self) -> _PlannedForm:
        if self._last is None:
            raise UsageError("the step was not called yet; it is traced and planned when it sees its first batch")
        return self._last

    def _program_for(self, batch: Any) -> _PlannedForm:
        concrete = traced_step(self._model, self._optimizer, self._loss, batch)
        model = TensorflowModel(concrete)
        means = _MEANS if self._budget is not None else _MEANS - {"recompute"}
        settings = PlanSettings(budget=self._budget, techniques=means, effort=self._effort)
        result = find_plan(model.graph, settings)
        space = model.graph.spaces[0].name
        if result.shortfall is not None:
            least = format_bytes(result.peak_bytes[space])
            warnings.warn(
                f"lowtide: the training step does not fit its budget, and runs with the least found, {least}: "
                f"{describe(result.shortfall)}",
                stacklevel=4,
            )
        own = executor_plan(model.translation)
        is_planned = is_worth_its_edges(model.graph, result.plan, own, result.budget.allowed[space])
        if not is_planned:

            def as_traced(tensors: Sequence[Any]) -> list[Any]:
                return [concrete(*tensors)]

            return _PlannedForm(model, result, is_planned, as_traced)
        return _PlannedForm(model, result, is_planned, function_like(concrete, model.planned_graph(result.plan)))


def training_step(
    model: Any, optimizer: Any, loss: Any, *, budget: GivenBudget = None, effort: EffortName = "fast"
) -> KerasStep:
    """Return a compiled training step of a Keras model that keeps a budget by running nodes of the traced step again.

    `loss` is a loss of Keras, the name of one, or a function of (labels, predictions); what the model adds by `losses`
    counts too. Call the step with a batch, `step(x, y)`: it returns the loss, and leaves the weights, the state of the
    optimizer and of layers as plain Keras leaves them. `budget` is that of `lowtide.minimize`, with variables counted
    unless it is a percentage; without one only the order is planned. Where nothing fits, a warning says what the least
    is, and the plan of least peak runs. Where TensorFlow does as well when it is left to itself, the step stays as it
    was traced. Planning is done at the first call, once for each form of batch.
    Raises MissingExtraError where TensorFlow is not installed; a call raises UsageError for what is no model, optimizer
    or loss, UnsupportedError for what cannot be traced or planned.
    """
    tensorflow()
    return KerasStep(model, optimizer, loss, budget, effort)
