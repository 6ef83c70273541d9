"""Every scheduler by name."""

from importlib import import_module
from importlib.metadata import EntryPoint, entry_points

from lowtide.core.errors import UsageError, unknown
from lowtide.engine.schedule.scheduler import Scheduler

ENTRY_POINT_GROUP = "lowtide.schedulers"
"""Third parties offer schedulers of their own in this entry point group: name = "module:Class"."""

SCHEDULERS = {
    "given": "lowtide.engine.schedule.given:Given",
    "mesh-list": "lowtide.engine.schedule.mesh_list:MeshList",
    "mesh-best": "lowtide.engine.schedule.mesh_list:MeshBest",
    "xla-list": "lowtide.engine.schedule.xla:XlaList",
    "xla-dfs": "lowtide.engine.schedule.xla:XlaDfs",
    "xla-postorder": "lowtide.engine.schedule.xla:Postorder",
    "xla-best": "lowtide.engine.schedule.xla:XlaBest",
    "lpmf": "lowtide.engine.schedule.inductor:Lpmf",
    "bfs": "lowtide.engine.schedule.inductor:Bfs",
    "dfs": "lowtide.engine.schedule.inductor:Dfs",
    "inductor-best": "lowtide.engine.schedule.inductor:InductorBest",
    "longest-path": "lowtide.engine.schedule.longest_path:LongestPath",
    "longest-path-merged": "lowtide.engine.schedule.longest_path:LongestPathMerged",
    "search": "lowtide.engine.schedule.search:Search",
}
"""Name to "module:Class", in the order in which results are shown."""


def scheduler_names() -> tuple[str, ...]:
    """Return the names of all schedulers: lowtide's own in table order, then third parties' sorted by name."""
    return (*SCHEDULERS, *sorted(_third_party()))


def scheduler(name: str) -> Scheduler:
    """Return the scheduler of this name with its default settings.

    Raises UsageError for an unknown name, and for a third party's entry that cannot be loaded.
    """
    if name in SCHEDULERS:
        module, _, attribute = SCHEDULERS[name].partition(":")
        return getattr(import_module(module), attribute)()
    entry = _third_party().get(name)
    if entry is None:
        raise UsageError(unknown("scheduler", name, scheduler_names()))
    try:
        return entry.load()()
    except Exception as error:
        raise UsageError(
            f"scheduler {name!r} ({entry.value}) cannot be loaded: {type(error).__name__}: {error}; "
            "update or remove the package that offers it"
        ) from error


def _third_party() -> dict[str, EntryPoint]:
    """Entries by name; a name of lowtide's own cannot be taken over."""
    return {entry.name: entry for entry in entry_points(group=ENTRY_POINT_GROUP) if entry.name not in SCHEDULERS}
