"""The table of schedulers."""

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import Literal

from lowtide.core.errors import UsageError, unknown
from lowtide.engine.schedule.scheduler import Scheduler

ENTRY_POINT_GROUP = "lowtide.schedulers"
"""Entry points of third-party schedulers: name = "module:Class"."""


@dataclass(frozen=True, slots=True)
class SchedulerRow:
    """A scheduler of lowtide. Its docstring describes it in the documentation."""

    target: str
    role: Literal["seed", "rival", "skipped"] = "seed"
    """Its use by `search`: to start from, to compare with at the end, or none."""


SCHEDULERS: Mapping[str, SchedulerRow] = {
    "given": SchedulerRow("lowtide.engine.schedule.scheduler:Given"),
    "mesh-list": SchedulerRow("lowtide.engine.schedule.mesh_list:MeshList"),
    "mesh-best": SchedulerRow("lowtide.engine.schedule.mesh_list:MeshBest", "rival"),
    "xla-list": SchedulerRow("lowtide.engine.schedule.xla:XlaList"),
    "xla-dfs": SchedulerRow("lowtide.engine.schedule.xla:XlaDfs"),
    "xla-postorder": SchedulerRow("lowtide.engine.schedule.xla:Postorder"),
    "xla-best": SchedulerRow("lowtide.engine.schedule.xla:XlaBest", "skipped"),
    "lpmf": SchedulerRow("lowtide.engine.schedule.inductor:Lpmf"),
    "bfs": SchedulerRow("lowtide.engine.schedule.inductor:Bfs"),
    "dfs": SchedulerRow("lowtide.engine.schedule.inductor:Dfs"),
    "inductor-best": SchedulerRow("lowtide.engine.schedule.inductor:InductorBest", "skipped"),
    "longest-path": SchedulerRow("lowtide.engine.schedule.longest_path:LongestPath", "rival"),
    "longest-path-merged": SchedulerRow("lowtide.engine.schedule.longest_path:LongestPathMerged"),
    "search": SchedulerRow("lowtide.engine.schedule.search:Search", "skipped"),
}
"""All schedulers of lowtide, in the order of results."""


def scheduler_names() -> tuple[str, ...]:
    """Return the names in the table's order, then third-party ones, sorted."""
    return (*SCHEDULERS, *sorted(_third_party()))


def scheduler(name: str) -> Scheduler:
    """Return a scheduler with its default settings.

    Raises UsageError for an unknown name, and for a third-party entry that cannot be loaded.
    """
    if name in SCHEDULERS:
        module, _, attribute = SCHEDULERS[name].target.partition(":")
        return getattr(import_module(module), attribute)()
    entry = _third_party().get(name)
    if entry is None:
        raise UsageError(unknown("scheduler", name, scheduler_names()))
    try:
        return entry.load()()
    except Exception as error:
        raise UsageError(
            f"scheduler {name!r} ({entry.value}) cannot be loaded: {type(error).__name__}: {error}; "
            "update or remove its package"
        ) from error


def _third_party() -> dict[str, EntryPoint]:
    return {entry.name: entry for entry in entry_points(group=ENTRY_POINT_GROUP) if entry.name not in SCHEDULERS}
