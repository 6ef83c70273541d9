"""The plan that `export` and `report` show: a new one, or that of `--plan`."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from lowtide.api.opening import open_model
from lowtide.core.errors import UsageError
from lowtide.core.progress import Report
from lowtide.engine.graph import Graph
from lowtide.engine.plan import Plan
from lowtide.engine.planning.plan_file import read_plan
from lowtide.engine.planning.result import Result
from lowtide.engine.planning.settings import PlanSettings
from lowtide.frameworks.model import Model


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """A model with a verified plan."""

    model: Model
    graph: Graph
    """Of the unmodified program or another form."""
    plan: Plan
    result: Result | None
    """None for a plan from a file."""


def plan_or_read(
    source: str,
    plan_path: Path | None,
    dims: Mapping[str, int],
    settings: PlanSettings,
    *,
    trust: bool,
    progress: Report,
    device: str | None = None,
) -> Planned:
    """Make or read a model's plan; raises UsageError for settings that a plan from a file ignores."""
    progress(f"reading {source}")
    model = open_model(source, dims, settings.host, trust=trust, device=device)
    if plan_path is None:
        result = model.planned(settings, progress)
        return Planned(model=model, graph=result.graph, plan=result.plan, result=result)
    if settings.budget is not None or settings.scheduler is not None:
        raise UsageError("--plan cannot be combined with --budget or --scheduler; leave either out")
    progress(f"verifying {plan_path}")
    form, plan = read_plan(plan_path, model, over_budget=True)
    return Planned(model=model, graph=form.graph, plan=plan, result=None)
