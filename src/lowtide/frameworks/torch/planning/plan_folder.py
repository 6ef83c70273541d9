"""A folder of plan files, written on one rank and read on all."""

import hashlib
from collections.abc import Iterable
from pathlib import Path

from lowtide.core.errors import FingerprintError, UsageError
from lowtide.engine.graph import Graph
from lowtide.engine.plan import Plan, write_plan_file
from lowtide.engine.planning.plan_file import result_of_file
from lowtide.engine.planning.program import Program
from lowtide.engine.planning.result import Result
from lowtide.engine.planning.settings import PlanSettings


def save_plans(planned: Iterable[tuple[Graph, Plan]], folder: Path) -> list[Path]:
    """Write plans to `FINGERPRINT.plan.json.gz` in a folder, made if missing. Raises UsageError, WriteError."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"cannot make folder {folder} for plans: {error.strerror}; name another") from None
    paths: dict[Path, None] = {}
    for graph, plan in planned:
        write_plan_file(plan, _path(folder, graph), graph)
        paths[_path(folder, graph)] = None
    return list(paths)


def load_plan(model: Program, folder: Path, settings: PlanSettings, *, over_budget: bool = False) -> Result:
    """Return a program's plan. Raises FingerprintError without one, and errors of `result_of_file`."""
    path = next((_path(folder, form.graph) for form in model.forms_with_state() if has_plan(form.graph, folder)), None)
    if path is None:
        raise FingerprintError(
            f"no plan in {folder} is for {model.graph.name!r} ({_path(folder, model.graph).name}); save plans of the "
            "same program, made with the same options, or leave the plans out"
        )
    return result_of_file(path, model, settings, over_budget=over_budget)


def has_plan(graph: Graph, folder: Path) -> bool:
    return _path(folder, graph).exists()


def digest_of(plan: Plan) -> str:
    return hashlib.sha256(repr(list(plan.steps())).encode()).hexdigest()


def _path(folder: Path, graph: Graph) -> Path:
    return folder / f"{graph.fingerprint}.plan.json.gz"
