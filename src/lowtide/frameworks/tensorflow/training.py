"""Training steps of Keras under a plan."""

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from lowtide.core.effort import EffortName
from lowtide.core.errors import UnsupportedError, UsageError, one_line
from lowtide.core.units import format_bytes
from lowtide.engine.graph import Graph
from lowtide.engine.planning.budget import GivenBudget, given_budget
from lowtide.engine.planning.measured import Measurement
from lowtide.engine.planning.plan_best_form import plan_best_form
from lowtide.engine.planning.result import Result
from lowtide.engine.planning.settings import PlanSettings, default_techniques
from lowtide.frameworks.tensorflow.executor import executor_plan, is_worth_its_edges
from lowtide.frameworks.tensorflow.graphs.graph_def import GraphDef
from lowtide.frameworks.tensorflow.model import TensorflowModel
from lowtide.frameworks.tensorflow.session import graph_message, tensorflow
from lowtide.reporting.shortfall import describe

_Form = tuple[tuple[Any, ...], ...]


@dataclass(frozen=True, slots=True, eq=False)
class _PlannedForm:
    model: TensorflowModel
    result: Result
    is_planned: bool
    run: Callable[[Sequence[Any]], list[Any]]


class KerasStep:
    """A training step under a plan. A call with a batch trains on it and returns the loss."""

    def __init__(self, model: Any, optimizer: Any, loss: Any, budget: GivenBudget, effort: EffortName) -> None:
        self._model, self._optimizer, self._loss = model, optimizer, loss
        self._budget: GivenBudget = budget
        self._effort: EffortName = effort
        self._programs: dict[_Form, _PlannedForm] = {}
        self._last: _PlannedForm | None = None

    @property
    def result(self) -> Result:
        """The plan of the last call, with its bounds. Raises UsageError before the first call."""
        return self._program.result

    @property
    def graph(self) -> Graph:
        """The graph of the last call."""
        return self._program.model.graph

    @property
    def is_planned(self) -> bool:
        """Whether the last call ran under its plan; not if the plan would save hardly anything."""
        return self._program.is_planned

    def __call__(self, x: Any, y: Any) -> Any:
        """Train on a batch and return the loss. The first batch of each form is traced and planned."""
        tf = tensorflow()
        batch = tf.nest.map_structure(tf.convert_to_tensor, (x, y))
        tensors = tf.nest.flatten(batch)
        form = tuple((tuple(tensor.shape), tensor.dtype) for tensor in tensors)
        if form not in self._programs:
            self._programs[form] = self._program_for(batch)
        self._last = self._programs[form]
        return self._last.run(tensors)[0]

    def measure(self) -> Measurement:
        """Measure the last call's step on synthetic data, with and without its plan."""
        program = self._program
        return program.model.measure(program.result.plan)

    def resident_bytes(self, *, planned: bool = True) -> int:
        """Return the resident memory that the step adds to a separate process."""
        program = self._program
        return program.model.resident_bytes(program.result.plan if planned else None)

    @property
    def _program(self) -> _PlannedForm:
        if self._last is None:
            raise UsageError("the step was not called yet; it is planned at its first batch")
        return self._last

    def _program_for(self, batch: Any) -> _PlannedForm:
        concrete = _traced_step(self._model, self._optimizer, self._loss, batch)
        model = TensorflowModel(concrete)
        techniques = default_techniques(self._budget)
        result = plan_best_form(model, PlanSettings(budget=self._budget, techniques=techniques, effort=self._effort))
        space = model.graph.spaces[0].name
        if result.shortfall is not None:
            lowest = format_bytes(result.peak_bytes[space])
            warnings.warn(
                f"lowtide: the training step misses its budget and runs with the lowest peak found, {lowest}: "
                f"{describe(result.shortfall)}",
                stacklevel=4,
            )
        own = executor_plan(model.translation)
        is_planned = is_worth_its_edges(model.graph, result.plan, own, result.budget.allowed[space])

        def as_traced(tensors: Sequence[Any]) -> list[Any]:
            return [concrete(*tensors)]

        run = _function_like(concrete, model.planned_graph(result.plan)) if is_planned else as_traced
        return _PlannedForm(model, result, is_planned, run)


def training_step(
    model: Any, optimizer: Any, loss: Any, *, budget: GivenBudget = None, effort: EffortName = "fast"
) -> KerasStep:
    """Return a compiled training step of a Keras model that meets a budget by recomputation.

    `step(x, y)` trains as plain Keras does and returns the loss. `loss` is a Keras loss, its name, or a function of
    (labels, predictions). `budget` is that of `lowtide.minimize`; without one, only the order is planned. A plan that
    misses the budget runs with a warning.

    Raises MissingExtraError without TensorFlow. A call raises UsageError for a model, optimizer or loss that is not
    from Keras, UnsupportedError for a step that cannot be traced or planned.
    """
    tensorflow()
    return KerasStep(model, optimizer, loss, given_budget(budget), effort)


def _traced_step(model: Any, optimizer: Any, loss: Any, batch: Any) -> Any:
    tf = tensorflow()
    for name, value, needed in (("model", model, "trainable_variables"), ("optimizer", optimizer, "apply_gradients")):
        if not hasattr(value, needed):
            raise UsageError(f"the {name} is of type {type(value).__name__}, which is not from Keras")
    loss_of = _loss_function(tf, loss)
    if not model.built:
        model(batch[0])
    optimizer.build(model.trainable_variables)

    def step(x: Any, y: Any) -> Any:
        with tf.GradientTape() as tape:
            value = loss_of(y, model(x, training=True))
            if value.shape.rank:
                value = tf.reduce_mean(value)
            if model.losses:
                value += tf.add_n(model.losses)
            scaled = optimizer.scale_loss(value)
        weights = model.trainable_variables
        optimizer.apply_gradients(zip(tape.gradient(scaled, weights), weights, strict=True))
        return value

    def spec(tensor: Any) -> Any:
        return tf.TensorSpec(tensor.shape, tensor.dtype)

    specs = tf.nest.map_structure(spec, batch)
    try:
        return tf.function(step).get_concrete_function(*specs)
    except Exception as error:  # TensorFlow and Keras raise several types
        raise UnsupportedError(f"TensorFlow cannot trace the training step: {one_line(error)}") from None


def _loss_function(tf: Any, loss: Any) -> Any:
    try:
        found = tf.keras.losses.get(loss)
    except (ValueError, TypeError):
        found = None
    if not callable(found):
        raise UsageError(f"{loss!r} is not a loss; give a Keras loss, its name, or a function of (labels, predictions)")
    return found


def _function_like(concrete: Any, graph: GraphDef) -> Callable[[Sequence[Any]], list[Any]]:
    """Return a function that runs a rewritten graph of a ConcreteFunction on the same variables."""
    traced = concrete.graph
    message = graph_message(graph)

    def imported() -> None:
        tf = tensorflow()
        here = tf.compat.v1.get_default_graph()
        captured = {inner.name: here.capture(outer) for outer, inner in traced.captures}
        tf.import_graph_def(message, name="", input_map=captured)

    try:
        wrapped = tensorflow().compat.v1.wrap_function(imported, [])
        made = wrapped.graph
        arguments = traced.inputs[: len(traced.inputs) - len(concrete.captured_inputs)]
        results = [made.get_tensor_by_name(tensor.name) for tensor in traced.outputs]
        effects = [made.get_operation_by_name(operation.name) for operation in traced.control_outputs]
        pruned = wrapped.prune([made.get_tensor_by_name(tensor.name) for tensor in arguments], [*results, *effects])
    except Exception as error:  # TensorFlow raises several types
        raise UnsupportedError(f"TensorFlow refuses the planned graph: {one_line(error)}") from None

    def run(tensors: Sequence[Any]) -> list[Any]:
        return list(pruned(*tensors))[: len(results)]

    return run
