"""A folder of plan files, one a graph and named after it: saved on one rank, taken by all instead of planning."""

import hashlib
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from lowtide.analysis.footprint import simulate
from lowtide.errors import FingerprintError, UsageError
from lowtide.graph import Graph
from lowtide.plan import Plan, read_plan_file, verify, write_plan_file
from lowtide.planning.baseline import baseline
from lowtide.planning.result import Result, result_of
from lowtide.planning.settings import PlanSettings

_FROM_FILE = "plan file"


def save_plans(planned: Iterable[tuple[Graph, Plan]], folder: Path) -> list[Path]:
    """Write the plans of graphs, each to `FINGERPRINT.plan.json.gz`, and return the paths.

    The folder is made where there is none. Raises UsageError when a file cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"cannot make folder {folder} for plans: {error.strerror}; name another") from None
    paths: dict[Path, None] = {}
    for graph, plan in planned:
        write_plan_file(plan, _path(folder, graph), graph)
        paths[_path(folder, graph)] = None
    return list(paths)


def load_plan(graph: Graph, folder: Path, settings: PlanSettings) -> Result:
    """Read the plan of a graph, verify it, and price it as if these settings had just made it.

    Raises FingerprintError where the folder has none for this graph, otherwise what `read_plan_file` raises.
    """
    path = _path(folder, graph)
    if not path.exists():
        raise FingerprintError(
            f"no plan in {folder} is for {graph.name!r} ({path.name}); save plans of the same program, "
            "compiled with the same options, or leave the option plans out"
        )
    plan = read_plan_file(path, graph)
    infeasible = plan.status == "infeasible"
    shortfall = f"the plan in {path} did not fit its budget when it was made" if infeasible else None
    return result_with(graph, plan, settings, _FROM_FILE, shortfall)


def result_with(
    graph: Graph, plan: Plan, settings: PlanSettings, scheduler: str, shortfall: str | None, seconds: float = 0.0
) -> Result:
    """Verify a plan that was made elsewhere, and price it as if these settings had just made it."""
    plan = replace(plan, peak_bytes=simulate(graph, plan).peak_bytes)
    verify(graph, plan, check_capacity=False)
    draft = baseline(graph, settings).taking(plan)
    prices = draft.prices.seconds
    draft = replace(
        draft,
        scheduler=scheduler,
        extra_cost=float(prices[plan.order()].sum() - prices.sum()),
        extra_cost_bound=None,
        shortfall=shortfall,
    )
    return result_of(draft, seconds)


def digest_of(plan: Plan) -> str:
    """Return what tells a plan for a graph from all others."""
    return hashlib.sha256(repr(list(plan.steps())).encode()).hexdigest()


def _path(folder: Path, graph: Graph) -> Path:
    return folder / f"{graph.fingerprint}.plan.json.gz"
