"""Schedules of operations for the least peak, by the names that Mesh-TensorFlow gives its methods and by lowtide's."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from lowtide.core.effort import DEFAULT_EFFORT, EffortName
from lowtide.engine.planning.plan_best_form import plan_best_form
from lowtide.engine.planning.result import Result
from lowtide.engine.planning.settings import PlanSettings
from lowtide.engine.schedule import plan_graph, scheduler
from lowtide.frameworks.mesh_tensorflow.model import MeshTensorflowModel

METHODS = {"NAIVE": "given", "LIST": "mesh-best", "OPTIMAL": "search"}
"""Mesh-TensorFlow's names, and one more, for schedulers."""


def minimize_peak_memory(
    graph: Any,
    scheduler_alg: str = "LIST",
    *,
    final: Iterable[str] = (),
    partial_layout: Mapping[str, str] | None = None,
    mesh_dimension_to_size: Mapping[str, int] | None = None,
) -> list[int]:
    """Return operation ids in an order that needs little memory.

    `graph` and what follows `scheduler_alg` are those of `MeshTensorflowModel`. "NAIVE" is the order in which the graph
    lists its operations. "LIST" runs next what frees most bytes: the lesser peak of the rule as it is meant and as
    Mesh-TensorFlow runs it, so never a higher one than there (`engine.schedule.mesh_list` tells the difference).
    "OPTIMAL" searches; `plan` also says how far from the best its result can be. Any name of a scheduler will do, too.
    Raises UsageError for another name, and what `MeshTensorflowModel` raises.
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
    """Return the operation ids of the best order found, and what is known of it: its peak, bounds, and their proof.

    The arguments are those of `minimize_peak_memory`; `effort` is how much work the search may do.
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
    """Return, per operation of a schedule, the tensors in memory while it runs; see `memory_contents` of the model."""
    return MeshTensorflowModel(graph, final=final).memory_contents(schedule)
