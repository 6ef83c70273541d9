"""What a plan says that a step will take, where one plan says it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lowtide.engine.analysis.footprint import simulate
from lowtide.engine.plan import Plan
from lowtide.engine.planning.result import Result
from lowtide.frameworks.torch.emit.apply import Applied
from lowtide.frameworks.torch.planning.planned_program import PlannedModule


@dataclass(frozen=True, slots=True)
class Prediction:
    """The peaks of a step under its plan and as it was, per memory space, or why nothing is known of them."""

    peak_bytes: Mapping[str, int] | None = None
    untouched_peak_bytes: Mapping[str, int] | None = None
    reason: str | None = None
    """Why there are no peaks; None where there are."""
    planned: tuple[Result, ...] = ()
    """What planning said of every program of the step."""


def predict(step: object, programs: Sequence[PlannedModule]) -> Prediction:
    """Return what is known of a step; `programs` are those of the backend that ran in a call of it."""
    if isinstance(step, Applied) and step.planned is not None:
        graph, plan = step.planned
        return Prediction(simulate(graph, plan).peak_bytes, simulate(graph, Plan.baseline(graph)).peak_bytes)
    own = getattr(step, "result", None)
    if isinstance(own, Result):
        return Prediction(own.peak_bytes, own.baseline_peak_bytes, planned=(own,))
    planned = tuple(program.result for program in programs)
    if not programs:
        return Prediction(reason="nothing that ran was planned by lowtide")
    if len(programs) > 1:
        reason = f"{len(programs)} programs ran, and what each leaves alive while others run is known to none of them"
        return Prediction(reason=reason, planned=planned)
    (only,) = programs
    return Prediction(only.predicted_peak_bytes, only.result.baseline_peak_bytes, planned=planned)
