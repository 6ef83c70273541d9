"""Schedule operations for low peak memory."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from lowtide.core.effort import DEFAULT_EFFORT, EffortName
from lowtide.engine.planning.plan_best_form import plan_best_form
from lowtide.engine.planning.result import Result
from lowtide.engine.planning.settings import PlanSettings
from lowtide.engine.schedule import plan_graph, scheduler
from lowtide.frameworks.mesh_tensorflow.model import MeshTensorflowModel

METHODS = {"NAIVE": "given", "LIST": "mesh-best", "OPTIMAL": "search"}
"""Schedulers by Mesh-TensorFlow's names, and OPTIMAL."""


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

    Arguments are those of `minimize_peak_memory`; `effort` bounds the work of the search.
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
    """Return the live tensors during each operation of a schedule; see `MeshTensorflowModel.memory_contents`."""
    return MeshTensorflowModel(graph, final=final).memory_contents(schedule)
