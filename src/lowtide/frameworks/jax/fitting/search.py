"""The search for a function within a budget: plans under the model, judged by what XLA says once they are compiled."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from lowtide.analysis import simulate
from lowtide.checkpointing import segment_plan
from lowtide.effort import EffortName
from lowtide.frameworks.jax.emit.emit import run_plan
from lowtide.frameworks.jax.fitting.compiled import CompiledCandidate, CompiledFigures, Flat, compile_flat, schedulers
from lowtide.frameworks.jax.flat.flatten import flatten
from lowtide.frameworks.jax.flat.program import FlatProgram
from lowtide.frameworks.jax.flat.run import run_program
from lowtide.frameworks.jax.flat.traced import TracedFunction
from lowtide.frameworks.jax.reading.read import JaxTranslation, read_program
from lowtide.index_spaces import OpId
from lowtide.plan import Plan
from lowtide.planning.minimize import minimize
from lowtide.planning.result import Result

MOST_ROUNDS = 5
"""How often a plan is made anew for less, where XLA needed more than the plan said."""
_SEGMENTS = (2, 3, 4, 6, 8, 12, 16)
"""Numbers of segments that are tried where plans op by op do not fit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried:
    """One candidate that was compiled."""

    name: str
    predicted_bytes: int | None
    """Peak of its temporaries under lowtide's model; None for the function as it stands."""
    temp_bytes: int
    """What XLA says."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FitFound:
    """What the search found: a compiled candidate, never worse than the function as it stands."""

    best: CompiledCandidate
    predicted_bytes: int | None
    result: Result | None
    """What planning says of the plan that the candidate follows; None where it follows none."""
    untouched: CompiledFigures
    target_bytes: int
    tried: tuple[Tried, ...]

    @property
    def fits(self) -> bool:
        """Whether XLA says that it needs no more than the target."""
        return self.best.figures.temp_bytes <= self.target_bytes


class FitSearch:
    """One search; candidates are made one after the other until one fits."""

    def __init__(self, traced: TracedFunction, techniques: frozenset[str], effort: EffortName) -> None:
        self._traced = traced
        self._techniques = techniques
        self._effort: EffortName = effort
        self._program = flatten(traced.jaxpr, traced.name, traced.donated)
        self._tried: list[Tried] = []
        self.untouched = self._compiled("as it stands", _unplanned(self._program), 0)

    def fit(self, target: int) -> FitFound:
        """Return the first candidate within a target of temp bytes, else the one that needs least.

        First the function as it stands, under each of XLA's schedulers; then plans op by op; then plans by segments.
        """
        best, predicted, result = self.untouched, None, None
        for name, flat, peak, planned in self._candidates(target):
            for scheduler in range(1 if peak is None else 0, len(schedulers())):
                if best.figures.temp_bytes <= target:
                    break
                each = self._compiled(name, flat, scheduler, peak)
                if each.figures.temp_bytes < best.figures.temp_bytes:
                    best, predicted, result = each, peak, planned
        return FitFound(
            best=best,
            predicted_bytes=predicted,
            result=result,
            untouched=self.untouched.figures,
            target_bytes=target,
            tried=tuple(self._tried),
        )

    def _candidates(self, target: int) -> Iterator[tuple[str, Flat, int | None, Result | None]]:
        yield "as it stands", _unplanned(self._program), None, None
        if "recompute" not in self._techniques:
            return
        translation = read_program(self._program, "temporaries")
        baseline = _only(simulate(translation.graph, Plan.baseline(translation.graph)).peak_bytes)
        limit = max(target, target * baseline // max(1, self.untouched.figures.temp_bytes))
        for _ in range(MOST_ROUNDS):
            planned = minimize(
                translation.graph, budget=limit, transient=True, allow=self._techniques, effort=self._effort
            )
            runs: list[OpId] = planned.plan.order().tolist()
            peak = _only(planned.peak_bytes)
            yield "planned", _following(translation, runs), peak, planned
            least = min(each.temp_bytes for each in self._tried[-len(schedulers()) :])
            if planned.shortfall is not None or limit <= 0:
                break
            limit = min(limit - max(least - target, limit // 50), limit - 1)
            if limit <= 0:
                break
        for segments in _SEGMENTS:
            plan = segment_plan(translation.graph, n_segments=segments)
            peak = _only(simulate(translation.graph, plan).peak_bytes)
            yield f"in {segments} segments", _following(translation, plan.order().tolist()), peak, None

    def _compiled(self, name: str, flat: Flat, scheduler: int, predicted: int | None = None) -> CompiledCandidate:
        options = schedulers()[scheduler]
        full = f"{name}, scheduled for least memory" if options else name
        candidate = compile_flat(full, flat, self._traced, options)
        self._tried.append(Tried(name=full, predicted_bytes=predicted, temp_bytes=candidate.figures.temp_bytes))
        return candidate


def _unplanned(program: FlatProgram) -> Flat:
    return lambda *leaves: run_program(program, leaves)


def _following(translation: JaxTranslation, runs: Sequence[OpId]) -> Flat:
    return lambda *leaves: run_plan(translation, runs, leaves)


def _only(figures: Mapping[str, int]) -> int:
    """Return the figure of the one memory space that programs of JAX have."""
    (figure,) = figures.values()
    return figure
