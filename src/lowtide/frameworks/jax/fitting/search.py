"""Compile planned candidates until XLA's temp bytes meet a target."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

from lowtide.core.progress import current_report
from lowtide.engine.analysis.problem import Problem
from lowtide.engine.plan import Plan
from lowtide.engine.plan.claim import Claim
from lowtide.engine.planning.claims import peak_claims
from lowtide.engine.planning.find_plan import find_plan
from lowtide.engine.planning.result import Result
from lowtide.engine.planning.settings import PlanSettings
from lowtide.engine.recompute import least_possible
from lowtide.frameworks.jax.fitting.forms import (
    OTHER_WINDOWS,
    WINDOW,
    FunctionForm,
    RunOrder,
    form_with_planned_bodies,
    forms,
    only_figure,
    planned_orders,
    saving_form,
    segment_orders,
)
from lowtide.frameworks.jax.flat.flatten import Flat
from lowtide.frameworks.jax.flat.traced import TracedFunction
from lowtide.frameworks.jax.measure.compiled import (
    CompiledCandidate,
    CompiledFigures,
    compile_flat,
    schedulers,
)
from lowtide.frameworks.jax.scans.pairs import disjoint_pairs

Use = Callable[[FunctionForm, RunOrder], Flat]
_MAX_ROUNDS = 4
_MAX_BODY_ROUNDS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried:
    """A compiled candidate."""

    name: str
    predicted_bytes: int | None
    """Modeled peak; None for the unmodified function."""
    temp_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FitFound:
    """The best compiled candidate, never worse than the unmodified function."""

    traced: TracedFunction
    form: FunctionForm
    order: RunOrder
    best: CompiledCandidate
    unmodified: CompiledFigures
    target_bytes: int
    tried: tuple[Tried, ...]
    floor: Claim | None
    """A bound for all plans in the model; None if XLA needs less than the model."""

    @property
    def predicted_bytes(self) -> int | None:
        return self.order.predicted_bytes

    @property
    def result(self) -> Result | None:
        return self.order.result

    @property
    def fits(self) -> bool:
        return not self.missed_bytes

    @property
    def missed_bytes(self) -> int:
        return max(0, self.best.figures.temp_bytes - self.target_bytes)


def whole(form: FunctionForm, order: RunOrder) -> Flat:
    return order.of(form)


@dataclass(frozen=True, slots=True)
class _Best:
    form: FunctionForm
    order: RunOrder
    candidate: CompiledCandidate

    @property
    def temp_bytes(self) -> int:
        return self.candidate.figures.temp_bytes


class FitSearch:
    """A search that compiles candidates until one fits."""

    def __init__(
        self,
        traced: TracedFunction,
        settings: PlanSettings,
        uses: Sequence[Use] = (whole,),
        options: Sequence[Mapping[str, str]] | None = None,
    ) -> None:
        self._options = schedulers(traced.platform) if options is None else options
        self._uses = uses
        self.traced = traced
        self._recomputes = "recompute" in settings.techniques
        self._settings = settings
        self._forms = list(forms(traced) if self._recomputes else islice(forms(traced), 1))
        self._compiled: dict[Any, CompiledCandidate] = {}
        self._known: dict[Any, FunctionForm] = {}
        self._tried: list[Tried] = []
        self.unmodified = self._compile(self._forms[0], RunOrder(), 0, target=-1)

    @property
    def unmodified_form(self) -> FunctionForm:
        return self._forms[0]

    def fit(self, target: int) -> FitFound:
        """Return the first candidate within `target` temp bytes, or else the lowest one.

        A target below 0 means that arguments and results alone exceed the budget.
        """
        self._tried = self._tried[:1]
        self._best = _Best(self._forms[0], RunOrder(), self._compile(self._forms[0], RunOrder(), 0, target))
        for form, order in self._candidates(max(0, target)):
            for scheduler in reversed(range(len(self._options))):
                if self._best.temp_bytes <= target:
                    break
                each = self._compile(form, order, scheduler, target)
                if each.figures.temp_bytes < self._best.temp_bytes:
                    self._best = _Best(form, order, each)
            if self._best.temp_bytes <= target:
                break
        best = self._best
        floor = _floor((*self._forms, *self._known.values()))
        return FitFound(
            traced=self.traced,
            form=best.form,
            order=best.order,
            best=best.candidate,
            unmodified=self.unmodified.figures,
            target_bytes=target,
            tried=tuple(self._tried),
            floor=floor if floor is not None and floor.at_least <= best.temp_bytes else None,
        )

    def _candidates(self, target: int) -> Iterator[tuple[FunctionForm, RunOrder]]:
        first, last = self._forms[0], self._forms[-1]
        for form in self._forms:
            yield form, RunOrder(predicted_bytes=None if form is first else form.peak_bytes)
            if not self._recomputes:
                planned = find_plan(form.translation.graph, replace(self._settings, budget=None, transient=False))
                yield from ((form, order) for order in planned_orders(planned, self.traced.platform))
                continue
            yield from ((form, order) for order in self._planned(form, target, form is last))
            if form is first:
                yield from self._saving(form, target)
            yield from self._bodies(form, target)
        if self._recomputes:
            for order in segment_orders(last):
                if (order.predicted_bytes or 0) < self._best.temp_bytes:
                    yield last, order
        best = self._best
        if best.order.runs is not None:
            yield from ((best.form, best.order.held(window)) for window in OTHER_WINDOWS)

    def _planned(self, form: FunctionForm, target: int, is_last: bool) -> Iterator[RunOrder]:
        graph = form.translation.graph
        limit = max(target, target * form.peak_bytes // max(1, self._tried[-1].temp_bytes))
        for number in range(_MAX_ROUNDS):
            planned = find_plan(graph, replace(self._settings, budget=limit, transient=True))
            if planned.shortfall is not None and not is_last:
                return
            reached = self._best.temp_bytes
            lowest: list[int] = []
            for order in planned_orders(planned, self.traced.platform, only_held=self._best.order.window is not None):
                before = len(self._tried)
                yield order
                lowest.append(min((each.temp_bytes for each in self._tried[before:]), default=target))
            # XLA's own order may hide the effect of a plan; the held one, which comes last, does not
            excess = (min(lowest) if min(lowest) < reached else lowest[-1]) - target
            limit = min(limit, only_figure(planned.peak_bytes))
            limit -= min(max(excess * 5 // 4, limit // 50, 1) << number, limit // 2)  # larger steps in later rounds
            if planned.shortfall is not None or limit <= 0:
                return

    def _saving(self, form: FunctionForm, target: int) -> Iterator[tuple[FunctionForm, RunOrder]]:
        reached = self._best.temp_bytes
        limit = sum(pair.saved_bytes for pair in disjoint_pairs(form.translation.program))
        least = limit
        for _ in range(_MAX_ROUNDS):
            limit = max(0, limit - max(reached - target, limit // 50))
            found = saving_form(form, limit)
            if found is None:
                return
            saving, before = self._known.setdefault(found[1].saved_bytes, found[0]), len(self._tried)
            yield saving, RunOrder(predicted_bytes=saving.peak_bytes)
            if found[1].is_least or found[1].saved_bytes >= least:
                yield from ((saving, order) for order in self._planned(saving, target, is_last=False))
                yield from self._bodies(saving, target)
                return
            reached = min((each.temp_bytes for each in self._tried[before:]), default=reached)
            limit = least = found[1].saved_bytes

    def _bodies(self, form: FunctionForm, target: int) -> Iterator[tuple[FunctionForm, RunOrder]]:
        limit = target
        for _ in range(_MAX_BODY_ROUNDS):
            before = len(self._tried)
            for window in (None, WINDOW):
                planned = form_with_planned_bodies(form, limit, window)
                if planned is None:
                    return
                planned = self._known.setdefault((planned.name, limit), planned)
                yield planned, RunOrder(predicted_bytes=planned.peak_bytes)
            lowest = min((each.temp_bytes for each in self._tried[before:]), default=target)
            limit = min(limit - max((lowest - target) * 5 // 4, limit // 50), limit - 1)
            if limit <= 0:
                return

    def _compile(self, form: FunctionForm, order: RunOrder, scheduler: int, target: int) -> CompiledCandidate:
        found = self._compile_use(form, order, scheduler, 0)
        for number in range(1, len(self._uses)):
            if found.figures.temp_bytes > target:
                break
            other = self._compile_use(form, order, scheduler, number)
            found = max(found, other, key=lambda each: each.figures.temp_bytes)
        tried = Tried(name=found.name, predicted_bytes=order.predicted_bytes, temp_bytes=found.figures.temp_bytes)
        if tried not in self._tried:
            self._tried.append(tried)
        return found

    def _compile_use(self, form: FunctionForm, order: RunOrder, scheduler: int, number: int) -> CompiledCandidate:
        options = self._options[scheduler]
        name = ", ".join(filter(None, (form.name, order.name))) or "unmodified"
        name += ", scheduled for least memory" if options else ""
        key = id(form), order.runs, order.window, order.barriers, scheduler, number  # forms live as long as this search
        if key not in self._compiled:
            current_report()(f"compiling a candidate ({name})")
            self._compiled[key] = compile_flat(name, self._uses[number](form, order), self.traced, options)
        return self._compiled[key]


def _floor(tried: Sequence[FunctionForm]) -> Claim | None:
    graphs = [form.translation.graph for form in tried]
    bounds = [least_possible(Problem(graph, Plan.baseline(graph).callees, in_place=True), 0) for graph in graphs]
    number, lowest = min(enumerate(bounds), key=lambda numbered: numbered[1].peak_bytes)
    needs = {lowest.space: lowest.peak_bytes}
    return next(iter(peak_claims(needs, None, "reruns", in_place=True, in_chunks=number > 0)), None)
