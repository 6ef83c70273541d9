"""The search for a function within a budget: plans under the model, judged by what XLA says once they are compiled."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

from lowtide.analysis import simulate
from lowtide.checkpointing import segment_plan
from lowtide.effort import EffortName
from lowtide.frameworks.jax.fitting.compiled import CompiledCandidate, CompiledFigures, compile_flat, schedulers
from lowtide.frameworks.jax.fitting.variants import Variant, variants
from lowtide.frameworks.jax.flat.traced import TracedFunction
from lowtide.index_spaces import OpId
from lowtide.planning.minimize import find_plan
from lowtide.planning.result import Result
from lowtide.planning.settings import PlanSettings

MOST_ROUNDS = 4
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

    traced: TracedFunction
    """What was searched for: the function, or a loss with its backward pass."""
    variant: Variant
    """The program that the candidate computes."""
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
        self._variants = list(variants(traced) if "recompute" in techniques else islice(variants(traced), 1))
        self._compiled: dict[Any, CompiledCandidate] = {}
        self._tried: list[Tried] = []
        self.untouched = self._compile(self._variants[0], _Way(), 0)

    def fit(self, target: int) -> FitFound:
        """Return the first candidate within a target of temp bytes, else the one that needs least.

        First the function as it stands, under each of XLA's schedulers; then plans op by op; then the same with its
        scans in chunks; then plans by segments.
        """
        self._tried = self._tried[:1]
        best, chosen, chosen_variant = self.untouched, _Way(), self._variants[0]
        for variant, candidate in self._candidates(target):
            for scheduler in reversed(range(len(schedulers()))):
                if best.figures.temp_bytes <= target:
                    break
                each = self._compile(variant, candidate, scheduler)
                if each.figures.temp_bytes < best.figures.temp_bytes:
                    best, chosen, chosen_variant = each, candidate, variant
        return FitFound(
            traced=self._traced,
            variant=chosen_variant,
            best=best,
            predicted_bytes=chosen.predicted_bytes,
            result=chosen.result,
            untouched=self.untouched.figures,
            target_bytes=target,
            tried=tuple(self._tried),
        )

    def _candidates(self, target: int) -> Iterator[tuple[Variant, "_Way"]]:
        """Iterate variants and how to run them; what XLA said of the last one tells how much less to plan for."""
        last = self._variants[-1]
        for variant in self._variants:
            yield variant, _Way(predicted_bytes=None if variant is self._variants[0] else variant.peak_bytes)
            if "recompute" in self._techniques:
                yield from ((variant, candidate) for candidate in self._planned(variant, target, variant is last))
        for segments in _SEGMENTS if "recompute" in self._techniques else ():
            graph = last.translation.graph
            plan = segment_plan(graph, n_segments=segments)
            peak = _only(simulate(graph, plan).peak_bytes)
            yield last, _Way(f"in {segments} segments", tuple(plan.order().tolist()), peak)

    def _planned(self, variant: Variant, target: int, is_last: bool) -> Iterator["_Way"]:
        """Iterate plans for less and less; where the model knows of none, only the last variant's best is tried."""
        graph = variant.translation.graph
        limit = max(target, target * variant.peak_bytes // max(1, self._tried[-1].temp_bytes))
        for _ in range(MOST_ROUNDS):
            settings = PlanSettings(budget=limit, transient=True, techniques=self._techniques, effort=self._effort)
            planned = find_plan(graph, settings)
            if planned.shortfall is not None and not is_last:
                return
            yield _Way("planned", tuple(planned.plan.order().tolist()), _only(planned.peak_bytes), planned)
            least = min(each.temp_bytes for each in self._tried[-len(schedulers()) :])
            limit = min(limit - max((least - target) * 5 // 4, limit // 50), limit - 1)
            if planned.shortfall is not None or limit <= 0:
                return

    def _compile(self, variant: Variant, candidate: "_Way", scheduler: int) -> CompiledCandidate:
        """Compile a candidate, or take it from where it was before; it counts as tried either way."""
        options = schedulers()[scheduler]
        name = ", ".join(filter(None, (variant.name, candidate.name))) or "as it stands"
        name += ", scheduled for least memory" if options else ""
        key = variant.name, candidate.runs, scheduler
        if key not in self._compiled:
            flat = variant.unplanned() if candidate.runs is None else variant.following(candidate.runs)
            self._compiled[key] = compile_flat(name, flat, self._traced, options)
        found = self._compiled[key]
        tried = Tried(name=name, predicted_bytes=candidate.predicted_bytes, temp_bytes=found.figures.temp_bytes)
        if tried not in self._tried:
            self._tried.append(tried)
        return found


@dataclass(frozen=True, slots=True)
class _Way:
    """How to run a variant: in program order, or by a sequence of runs."""

    name: str = ""
    runs: tuple[OpId, ...] | None = None
    predicted_bytes: int | None = None
    result: Result | None = None


def _only(figures: Mapping[str, int]) -> int:
    """Return the figure of the one memory space that programs of JAX have."""
    (figure,) = figures.values()
    return figure
