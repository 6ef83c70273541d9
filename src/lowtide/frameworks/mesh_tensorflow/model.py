"""Mesh-TensorFlow graphs to schedule."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from lowtide.core.effort import DEFAULT_EFFORT, EffortName
from lowtide.core.errors import UsageError
from lowtide.engine.analysis import Problem
from lowtide.engine.analysis.live_ranges import live_ranges
from lowtide.engine.analysis.problem import Order
from lowtide.engine.graph.execution import is_valid_order
from lowtide.engine.plan import Plan, StepKind
from lowtide.engine.planning.plan_best_form import plan_best_form
from lowtide.engine.planning.result import Result
from lowtide.engine.planning.settings import PlanSettings
from lowtide.engine.schedule import plan_graph, scheduler
from lowtide.frameworks.mesh_tensorflow.interface import as_interface
from lowtide.frameworks.mesh_tensorflow.read import MeshLayout, read_interface
from lowtide.frameworks.model import UnrunnableModel


class MeshTensorflowModel(UnrunnableModel):
    """A GraphInterface, `mtf.Graph` or `tf.Graph`. It can be scheduled but not run."""

    KIND = "a graph of Mesh-TensorFlow"

    def __init__(
        self,
        source: Any,
        dims: Mapping[str, int] | None = None,
        *,
        final: Iterable[str] = (),
        partial_layout: Mapping[str, str] | None = None,
        mesh_dimension_to_size: Mapping[str, int] | None = None,
    ) -> None:
        """Read a graph.

        `final` names the tensors that a bare graph keeps to the end; a GraphInterface names its own. With a layout
        from tensor to mesh dimensions, sizes are per device. Raises UsageError for another object or an invalid
        layout, GraphError for an invalid program or an unknown shape, MalformedInputError if a method of the graph
        fails.
        """
        if dims:
            raise UsageError("a graph of Mesh-TensorFlow has no dynamic dimensions; leave out dims")
        layout = None
        if partial_layout:
            layout = MeshLayout(
                partial_layout=partial_layout, mesh_dimension_to_size=dict(mesh_dimension_to_size or {})
            )
            layout.check()
        self._translation = read_interface(as_interface(source, final), layout)
        super().__init__(self._translation.graph)

    def operation_ids(self, order: Order) -> list[int]:
        """Return an order of ops as operation ids, the positions in `get_all_operation_names`."""
        return self._translation.operation_ids[order].tolist()

    def apply(self, plan: Plan) -> list[int]:
        """Return operation ids in the plan's order.

        Raises PlanError for an invalid plan, UnsupportedError for recomputation.
        """
        return self.operation_ids(self.order_of(plan))

    def peak_bytes(self, schedule: Sequence[int]) -> int:
        """Return the peak of a schedule of operation ids; raises UsageError for an invalid one."""
        problem = Problem(self.graph, in_place=False)
        return int(problem.evaluate(self._order(schedule)).peaks[0])

    def memory_contents(self, schedule: Sequence[int]) -> list[frozenset[str]]:
        """Return the tensors in memory during each operation of a schedule, its outputs included.

        Raises UsageError for an invalid schedule.
        """
        order = self._order(schedule)
        plan = Plan.from_order(self.graph, order)
        ranges = live_ranges(self.graph, plan)
        begins: dict[int, list[str]] = {}
        ends: dict[int, list[str]] = {}
        buffers: list[int] = ranges.buffers.tolist()
        for buffer, first, last in zip(buffers, ranges.first_steps.tolist(), ranges.last_steps.tolist(), strict=True):
            begins.setdefault(first, []).append(self._translation.tensor_names[buffer])
            ends.setdefault(last, []).append(self._translation.tensor_names[buffer])
        live: set[str] = set()
        contents: list[frozenset[str]] = []
        for step, is_run in enumerate((plan.kinds == StepKind.RUN).tolist()):
            live.difference_update(ends.get(step, ()))
            live.update(begins.get(step, ()))
            if is_run:
                contents.append(frozenset(live))
        return contents

    def _order(self, schedule: Sequence[int]) -> Order:
        ops = np.empty(self.graph.n_ops, np.int32)
        ops[self._translation.operation_ids] = np.arange(self.graph.n_ops, dtype=np.int32)
        ids = list(schedule)
        if sorted(ids) == list(range(self.graph.n_ops)):
            order = ops[np.asarray(ids, np.int32)] if ids else ops
            if is_valid_order(self.graph, order):
                return order
        raise UsageError(
            f"invalid schedule for these {self.graph.n_ops} operations; "
            "give the id of each operation once, after those of its inputs"
        )


METHODS = {"NAIVE": "given", "LIST": "mesh-best", "OPTIMAL": "search"}


def minimize_peak_memory(
    graph: Any,
    scheduler_alg: str = "LIST",
    *,
    final: Iterable[str] = (),
    partial_layout: Mapping[str, str] | None = None,
    mesh_dimension_to_size: Mapping[str, int] | None = None,
) -> list[int]:
    """Return operation ids in an order of low peak memory.

    "NAIVE" is the order of the graph. "LIST" runs the operation that frees most bytes and never needs more than
    Mesh-TensorFlow's own LIST (see `engine.schedule.mesh_list`). "OPTIMAL" searches. Names of schedulers are valid,
    too; others raise UsageError. Other arguments and errors are those of `MeshTensorflowModel`.
    """
    name = METHODS.get(scheduler_alg, scheduler_alg)
    chosen = scheduler(name)
    model = MeshTensorflowModel(
        graph, final=final, partial_layout=partial_layout, mesh_dimension_to_size=mesh_dimension_to_size
    )
    return model.operation_ids(plan_graph(model.graph, chosen, in_place=False).order())


def plan(
    graph: Any,
    *,
    final: Iterable[str] = (),
    partial_layout: Mapping[str, str] | None = None,
    mesh_dimension_to_size: Mapping[str, int] | None = None,
    effort: EffortName = DEFAULT_EFFORT,
) -> tuple[list[int], Result]:
    """Return the operation ids of the best order found, and the result with its peak, lower bound and proof.

    `effort` bounds the work of the search; other arguments are those of `minimize_peak_memory`.
    """
    model = MeshTensorflowModel(
        graph, final=final, partial_layout=partial_layout, mesh_dimension_to_size=mesh_dimension_to_size
    )
    settings = PlanSettings(techniques=frozenset({"reorder"}), in_place=False, effort=effort)
    result = plan_best_form(model, settings)
    return model.apply(result.plan), result


def compute_memory_contents_under_schedule(
    graph: Any, schedule: Sequence[int], *, final: Iterable[str] = ()
) -> list[frozenset[str]]:
    """Return the live tensors during each operation; see `MeshTensorflowModel.memory_contents`."""
    return MeshTensorflowModel(graph, final=final).memory_contents(schedule)
