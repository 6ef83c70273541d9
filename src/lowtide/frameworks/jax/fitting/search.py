"""The search for a function within a budget: plans under the model, judged by what XLA says once they are compiled."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

from lowtide.core.effort import EffortName
from lowtide.engine.plan.claim import Claim
from lowtide.engine.planning.find_plan import find_plan
from lowtide.engine.planning.result import Result
from lowtide.engine.planning.settings import PlanSettings
from lowtide.frameworks.jax.fitting.floor import floor_of
from lowtide.frameworks.jax.fitting.variants import Variant, planned_bodies, saving_variant, variants
from lowtide.frameworks.jax.fitting.ways import HELD, OTHERWISE_HELD, Way, planned_ways, segment_ways
from lowtide.frameworks.jax.flat.traced import TracedFunction
from lowtide.frameworks.jax.measure.compiled import Around, CompiledCandidate, CompiledFigures, compile_flat, schedulers
from lowtide.frameworks.jax.scans.pairs import apart, scan_pairs

MOST_ROUNDS = 4
"""How often a plan is made anew for less, where XLA needed more than the plan said."""
MOST_BODY_ROUNDS = 2
"""The same for bodies of loops."""


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
    floor: Claim | None
    """What no plan can be below under lowtide's model; None where nothing is shown."""

    @property
    def fits(self) -> bool:
        """Whether XLA says that it needs no more than the target."""
        return self.best.figures.temp_bytes <= self.target_bytes


class FitSearch:
    """One search; candidates are made one after the other until one fits."""

    def __init__(
        self, traced: TracedFunction, techniques: frozenset[str], effort: EffortName, around: Around | None = None
    ) -> None:
        self._around = around
        self._traced = traced
        self._techniques = techniques
        self._settings = PlanSettings(techniques=techniques, effort=effort, addresses=False)
        self._variants = list(variants(traced) if "recompute" in techniques else islice(variants(traced), 1))
        self._compiled: dict[Any, CompiledCandidate] = {}
        self._known: dict[Any, Variant] = {}
        self._tried: list[Tried] = []
        self.untouched = self._compile(self._variants[0], Way(), 0)
        self._best = _Best(self._variants[0], Way(), self.untouched)

    def fit(self, target: int) -> FitFound:
        """Return the first candidate within a target of temp bytes, else the one that needs least.

        First the function as it stands, under each of XLA's schedulers; then plans op by op, their order left to XLA
        and held; then scans that save less; then plans with its scans in chunks; then plans by segments; then the best
        of all, held otherwise.
        """
        self._tried = self._tried[:1]
        self._best = _Best(self._variants[0], Way(), self.untouched)
        for variant, way in self._candidates(target):
            for scheduler in reversed(range(len(schedulers()))):
                if self._best.temp_bytes <= target:
                    break
                each = self._compile(variant, way, scheduler)
                if each.figures.temp_bytes < self._best.temp_bytes:
                    self._best = _Best(variant, way, each)
            if self._best.temp_bytes <= target:
                break
        best = self._best
        return FitFound(
            traced=self._traced,
            variant=best.variant,
            best=best.candidate,
            predicted_bytes=best.way.predicted_bytes,
            result=best.way.result,
            untouched=self.untouched.figures,
            target_bytes=target,
            tried=tuple(self._tried),
            floor=floor_of((*self._variants, *self._known.values())),
        )

    def _candidates(self, target: int) -> Iterator[tuple[Variant, Way]]:
        """Iterate variants and how to run them; what XLA said of the last ones tells how much less to plan for."""
        last = self._variants[-1]
        for variant in self._variants:
            yield variant, Way(predicted_bytes=None if variant is self._variants[0] else variant.peak_bytes)
            if "recompute" in self._techniques:
                yield from ((variant, way) for way in self._planned(variant, target, variant is last))
            else:
                planned = find_plan(variant.translation.graph, self._settings)
                yield from ((variant, way) for way in planned_ways(planned))
            if "recompute" in self._techniques:
                if variant is self._variants[0]:
                    yield from self._saving(variant, target)
                yield from self._bodies(variant, target)
        if "recompute" in self._techniques:
            for way in segment_ways(last):
                if (way.predicted_bytes or 0) < self._best.temp_bytes:
                    yield last, way
        best = self._best
        if best.way.runs is not None:
            yield from ((best.variant, best.way.held(window)) for window in OTHERWISE_HELD)

    def _planned(self, variant: Variant, target: int, is_last: bool) -> Iterator[Way]:
        """Iterate plans for less and less; where the model knows of none, only the last variant's best is tried."""
        graph = variant.translation.graph
        limit = max(target, target * variant.peak_bytes // max(1, self._tried[-1].temp_bytes))
        for number in range(MOST_ROUNDS):
            planned = find_plan(graph, replace(self._settings, budget=limit, transient=True))
            if planned.shortfall is not None and not is_last:
                return
            before = len(self._tried)
            yield from planned_ways(planned, only_held=self._best.way.window is not None)
            least = min((each.temp_bytes for each in self._tried[before:]), default=target)
            limit -= max((least - target) * 5 // 4, limit // 50, 1) << number  # further, the less XLA followed
            if planned.shortfall is not None or limit <= 0:
                return

    def _saving(self, variant: Variant, target: int) -> Iterator[tuple[Variant, Way]]:
        """Iterate the variant with scans that save less and less; that with the least is planned beyond its scans."""
        reached = self._best.temp_bytes
        limit = sum(pair.saved_bytes for pair in apart(scan_pairs(variant.translation.program)))
        least = limit
        for _ in range(MOST_ROUNDS):
            limit = max(0, limit - max(reached - target, limit // 50))
            found = saving_variant(variant, limit)
            if found is None:
                return
            saving, before = self._known.setdefault(found[1].saved_bytes, found[0]), len(self._tried)
            yield saving, Way(predicted_bytes=saving.peak_bytes)
            if found[1].is_least or found[1].saved_bytes >= least:
                yield from ((saving, way) for way in self._planned(saving, target, is_last=False))
                yield from self._bodies(saving, target)
                return
            reached = min((each.temp_bytes for each in self._tried[before:]), default=reached)
            limit = least = found[1].saved_bytes

    def _bodies(self, variant: Variant, target: int) -> Iterator[tuple[Variant, Way]]:
        """Iterate the variant with bodies of its loops planned for less and less, their order left to XLA and held."""
        limit = target
        for _ in range(MOST_BODY_ROUNDS):
            before = len(self._tried)
            for window in (None, HELD):
                planned = planned_bodies(variant, limit, window)
                if planned is None:
                    return
                planned = self._known.setdefault((planned.name, limit), planned)
                yield planned, Way(predicted_bytes=planned.peak_bytes)
            least = min((each.temp_bytes for each in self._tried[before:]), default=target)
            limit = min(limit - max((least - target) * 5 // 4, limit // 50), limit - 1)
            if limit <= 0:
                return

    def _compile(self, variant: Variant, way: Way, scheduler: int) -> CompiledCandidate:
        """Compile a candidate, or take it from where it was before; it counts as tried either way."""
        options = schedulers()[scheduler]
        name = ", ".join(filter(None, (variant.name, way.name))) or "as it stands"
        name += ", scheduled for least memory" if options else ""
        key = id(variant), way.runs, way.window, scheduler  # variants stay as long as this search
        if key not in self._compiled:
            self._compiled[key] = compile_flat(name, way.of(variant), self._traced, options, self._around)
        found = self._compiled[key]
        tried = Tried(name=name, predicted_bytes=way.predicted_bytes, temp_bytes=found.figures.temp_bytes)
        if tried not in self._tried:
            self._tried.append(tried)
        return found


@dataclass(frozen=True, slots=True)
class _Best:
    """What needs least so far."""

    variant: Variant
    way: Way
    candidate: CompiledCandidate

    @property
    def temp_bytes(self) -> int:
        return self.candidate.figures.temp_bytes
