"""A folder of plan files, one a graph and named after it: saved on one rank, taken by all instead of planning."""

import hashlib
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from lowtide.analysis.footprint import simulate
from lowtide.costs import ProfileName, price
from lowtide.errors import FingerprintError, UsageError
from lowtide.graph import Graph
from lowtide.pipeline import Result
from lowtide.plan import Plan, read_plan_file, write_plan_file
from lowtide.recompute.unrolled import first_runs
from lowtide.search import moved_ops
from lowtide.timeline import transfers_of

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


def load_plan(graph: Graph, folder: Path, profile: ProfileName) -> Result:
    """Read the plan of a graph, verify it, and price it as if it had just been made.

    Raises FingerprintError where the folder has none for this graph, otherwise what `read_plan_file` raises.
    """
    path = _path(folder, graph)
    if not path.exists():
        raise FingerprintError(
            f"no plan in {folder} is for {graph.name!r} ({path.name}); save plans of the same program, "
            "compiled with the same options, or leave the option plans out"
        )
    plan = read_plan_file(path, graph)
    prices = price(graph, profile)
    order = plan.order().tolist()
    infeasible = plan.status == "infeasible"
    return Result(
        plan=plan,
        status=plan.status,
        scheduler=_FROM_FILE,
        moved_ops=len(moved_ops(first_runs(order), np.arange(graph.n_ops, dtype=np.int32))),
        baseline_peak_bytes=simulate(graph, Plan.baseline(graph)).peak_bytes,
        peak_bytes=plan.peak_bytes,
        arena_bytes=plan.arena_bytes,
        arena_lower_bound_bytes=plan.peak_bytes,
        lower_bound_bytes=plan.lower_bound_bytes,
        proof=None,
        persistent_bytes=graph.persistent_bytes(),
        base_cost=float(prices.seconds.sum()),
        extra_cost=float(prices.seconds[order].sum() - prices.seconds.sum()),
        extra_cost_bound=None,
        base_order=_FROM_FILE,
        costs=prices.profile,
        reruns=len(order) - graph.n_ops,
        transfers=transfers_of(graph, plan, prices),
        seconds=0.0,
        shortfall=f"the plan in {path} did not fit its budget when it was made" if infeasible else None,
    )


def digest_of(plan: Plan) -> str:
    """Return what tells a plan for a graph from all others."""
    return hashlib.sha256(repr(list(plan.steps())).encode()).hexdigest()


def _path(folder: Path, graph: Graph) -> Path:
    return folder / f"{graph.fingerprint}.plan.json.gz"
