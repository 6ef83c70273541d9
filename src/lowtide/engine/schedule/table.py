"""The table of schedulers, by name."""

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import Literal

from lowtide.core.errors import UsageError
from lowtide.core.suggestions import unknown
from lowtide.engine.schedule.scheduler import Scheduler

ENTRY_POINT_GROUP = "lowtide.schedulers"
"""Entry points of third-party schedulers: name = "module:Class"."""


@dataclass(frozen=True, slots=True)
class SchedulerRow:
    """A scheduler in the table. Help texts and pages of the documentation are made from it."""

    target: str
    """The class, as "module:Class"."""
    rule: str
    """The rule in a few words."""
    source: str = "lowtide"
    role: Literal["seed", "rival", "skipped"] = "seed"
    """Its use by `search`: to start from, to compare with at the end because it is close to a seed, or none."""


_HERE = "lowtide.engine.schedule"
SCHEDULERS: Mapping[str, SchedulerRow] = {
    "given": SchedulerRow(f"{_HERE}.scheduler:Given", "program order", "the program"),
    "mesh-list": SchedulerRow(
        f"{_HERE}.mesh_list:MeshList", "most bytes freed next, two defects mended", "Mesh-TensorFlow, `auto_mtf` LIST"
    ),
    "mesh-best": SchedulerRow(
        f"{_HERE}.mesh_list:MeshBest", "the better of `mesh-list` and the original", "Mesh-TensorFlow", "rival"
    ),
    "xla-list": SchedulerRow(f"{_HERE}.xla:XlaList", "most bytes freed minus defined next", "XLA, ListMemoryScheduler"),
    "xla-dfs": SchedulerRow(f"{_HERE}.xla:XlaDfs", "depth first, by extra users and sizes", "XLA, DFSMemoryScheduler"),
    "xla-postorder": SchedulerRow(f"{_HERE}.xla:Postorder", "depth first, as read", "XLA, PostOrderMemoryScheduler"),
    "xla-best": SchedulerRow(f"{_HERE}.xla:XlaBest", "the best of the three", "XLA, DefaultMemoryScheduler", "skipped"),
    "lpmf": SchedulerRow(f"{_HERE}.inductor:Lpmf", "least peak memory first", "PyTorch Inductor"),
    "bfs": SchedulerRow(f"{_HERE}.inductor:Bfs", "the op with the earliest predecessors", "PyTorch Inductor"),
    "dfs": SchedulerRow(f"{_HERE}.inductor:Dfs", "smallest ops first, each after its operands", "PyTorch Inductor"),
    "inductor-best": SchedulerRow(
        f"{_HERE}.inductor:InductorBest", "the best of program order and the three", "PyTorch Inductor", "skipped"
    ),
    "longest-path": SchedulerRow(
        f"{_HERE}.longest_path:LongestPath", "sources with the longest path first", "Caffe2 memonger", "rival"
    ),
    "longest-path-merged": SchedulerRow(
        f"{_HERE}.longest_path:LongestPathMerged", "the same, with ties in program order", "after Caffe2 memonger"
    ),
    "search": SchedulerRow(f"{_HERE}.search:Search", "the best order found, with a bound", role="skipped"),
}
"""All schedulers of lowtide, in the order of results."""


def scheduler_names() -> tuple[str, ...]:
    """Return the names of all schedulers: the table's in its order, then third-party ones, sorted."""
    return (*SCHEDULERS, *sorted(_third_party()))


def scheduler(name: str) -> Scheduler:
    """Return the scheduler of this name with its default settings.

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
