"""One budget for several graphs: measure the first step, then plan its graphs again."""

import logging
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakSet

import torch

from lowtide.core.units import format_bytes, percent
from lowtide.engine.planning.budget import GivenBudget, budget_bytes, is_part
from lowtide.frameworks.torch.internals import pytree
from lowtide.frameworks.torch.internals.allocators import AllocatorStart
from lowtide.frameworks.torch.internals.aot_autograd import backward_of, saved_by, saved_outside
from lowtide.frameworks.torch.internals.tensors import storage_bytes, storage_key
from lowtide.frameworks.torch.planning.graph_calls import (
    GraphCall,
    Storages,
    bytes_of_later_calls,
    gradients_after,
    peak_of_calls,
    storages_of,
)
from lowtide.frameworks.torch.planning.missed_budgets import describe_lowest_peak
from lowtide.frameworks.torch.planning.options import Options
from lowtide.frameworks.torch.planning.plan_program import Share
from lowtide.frameworks.torch.planning.planned_program import MINOR_BYTES, PlannedModule
from lowtide.frameworks.torch.planning.programs import planned_programs, register, unregister

_MIN_TIME_AT_STAKE = 0.01
"""Share of a step's time that planning again must be able to save."""
_SETTLED = 3
_LOG = logging.getLogger("lowtide")
Run = Callable[..., Any]
Recompile = Callable[[Share, list[PlannedModule]], tuple[Run, list[PlannedModule]] | None]


@dataclass(eq=False)
class ProgramGraph:
    program: "SharedBudget"
    planned: list[PlannedModule]
    compiled: Run
    recompile: Recompile | None
    missed: list[str]
    """Warnings, issued unless the budget is shared by several graphs."""
    previous: tuple[Run, list[PlannedModule]] | None = None
    """The earlier compilation, until the new one proves better."""
    was_seen: bool = False
    has_gradients: bool = False

    def __call__(self, inputs: Sequence[Any]) -> Any:
        if not self.program.is_settled:
            return self.program.run(self, inputs)
        if not self.was_seen:
            return self.program.run_new(self, inputs)
        self.warn_missed_budget()
        return self.compiled(*inputs)

    def warn_missed_budget(self) -> None:
        """Issue warnings once, but not for a missed percentage in evaluation, which recomputes nothing."""
        missed, self.missed = self.missed, []
        if is_part(self.program.options.budget) and not self.has_gradients:
            return
        for message in missed:
            warnings.warn(message, stacklevel=3)

    def saved_storages(self, saved: Sequence[torch.Tensor]) -> Storages:
        """Return storages at planned sizes, unless hooks replaced the tensors."""
        (planned,) = self.planned
        if len(saved) != len(planned.saved_bytes):
            return storages_of(saved)
        sizes = zip(saved, planned.saved_bytes, strict=True)
        return {storage_key(each): int(storage_bytes(each) * size / max(each.nbytes, 1)) for each, size in sizes}

    def restore_previous(self) -> None:
        if self.previous is not None:
            unregister(self.planned)
            self.compiled, self.planned = self.previous
            for planned in self.planned:
                register(planned)


@dataclass(slots=True, eq=False)
class _Call(GraphCall):
    graph: ProgramGraph


@dataclass(eq=False)
class SharedBudget:
    """Graphs with the same options, and measurements of their first steps."""

    options: Options
    given: object = None
    """The user's options object, which identifies the program."""
    graphs: WeakSet[ProgramGraph] = field(default_factory=WeakSet[ProgramGraph])
    had_graphs: bool = False
    skipped: int = 0
    _calls: list[_Call] = field(default_factory=list[_Call])
    _open: list[_Call] = field(default_factory=list[_Call])
    _parameters: Storages = field(default_factory=dict[int, int])
    _shares: dict[ProgramGraph, tuple[int, Share]] = field(default_factory=dict[ProgramGraph, tuple[int, Share]])
    _steps: int = 0
    """Steps measured with the present graphs; -1 if the step began unmeasured."""
    _awaited: WeakSet[ProgramGraph] = field(default_factory=WeakSet[ProgramGraph])
    """If not empty, only steps with one of these count."""
    _allocated: AllocatorStart | None = None
    _first_peak: int | None = None

    def add(
        self,
        planned: list[PlannedModule],
        compiled: Run,
        recompile: Recompile | None,
        missed: list[str],
        *,
        has_gradients: bool,
    ) -> ProgramGraph:
        graph = ProgramGraph(self, planned, compiled, recompile, missed, has_gradients=has_gradients)
        self.graphs.add(graph)
        self.had_graphs = True
        return graph

    @property
    def is_settled(self) -> bool:
        return self._steps >= _SETTLED

    def run(self, graph: ProgramGraph, inputs: Sequence[Any]) -> Any:
        given = storages_of(inputs)
        if not self._calls:
            self._allocated = AllocatorStart.of(inputs)
        parameters = storages_of(each for each in inputs if isinstance(each, torch.nn.Parameter))
        self._parameters.update(parameters)
        saved_before: Storages = {key: size for call in self._open for key, size in call.saved.items()}
        saved_elsewhere = storages_of(saved_outside(inputs))
        outside = sum(size for key, size in saved_elsewhere.items() if key not in given and key not in saved_before)
        held = outside + sum(size for key, size in saved_before.items() if key not in given)
        if graph in self._shares:
            target, share = self._shares.pop(graph)
            self._plan_again(graph, Share(max(0, min(target - held, share.allowed)), share.others))
        result = graph.compiled(*inputs)
        graph.was_seen = True
        node = backward_of(result)
        graph.has_gradients |= node is not None
        if node is None or len(graph.planned) != 1:
            graph.warn_missed_budget()
            return result
        saved = {key: size for key, size in graph.saved_storages(saved_by(node)).items() if key not in self._parameters}
        (planned,) = graph.planned
        returned: list[torch.Tensor] = [each for each in pytree.tree_leaves(result) if isinstance(each, torch.Tensor)]
        call = _Call(
            planned=planned,
            held=held,
            outside=outside,
            saved=saved,
            own_saved=sum(saved.values()) + planned.fewer_saved_bytes,
            gradients=sum(parameters.values()),
            given=given,
            returned=storages_of(returned),
            tangents=sum(storages_of(each for each in returned if each.requires_grad).values()),
            graph=graph,
        )
        self._calls.append(call)
        self._open.append(call)

        def end_call(*_gradients: object) -> None:
            self._end_call(call)

        node.register_hook(end_call)
        return result

    def run_new(self, graph: ProgramGraph, inputs: Sequence[Any]) -> Any:
        graph.was_seen = True
        result = graph.compiled(*inputs)
        if graph.recompile is None or backward_of(result) is None:
            graph.warn_missed_budget()
            return result
        self._steps, self._first_peak = -1, None
        self._awaited.add(graph)
        return result

    def _end_call(self, call: _Call) -> None:
        if call in self._open:
            self._open.remove(call)
            if not self._open:
                self._end_step()

    def _end_step(self) -> None:
        calls, self._calls = self._calls, []
        is_measured = self._steps >= 0
        self._steps = max(self._steps, 0)
        if not is_measured or (self._awaited and not any(call.graph in self._awaited for call in calls)):
            return
        self._steps += 1
        self._awaited.clear()
        peak, alone = peak_of_calls(calls, own=False), peak_of_calls(calls, own=True)
        budget, parameters = self.options.budget, sum(self._parameters.values())
        allowed = None if budget is None else budget_bytes(budget, alone, parameters)
        self._log(calls, peak, alone, allowed)
        if self._steps == 1 and allowed is not None and len(calls) > 1 and (peak > allowed or self._is_too_low(calls)):
            self._divide(calls, peak, allowed)
            self._awaited.update(self._shares)
            self._first_peak = peak
            return
        if self._first_peak is not None and peak >= self._first_peak and (allowed is None or peak > allowed):
            _LOG.info("planning the graphs again did not lower their peak; restoring the plans of the first step")
            for call in calls:
                call.graph.restore_previous()
            peak = self._first_peak
        for call in calls:
            call.graph.previous = None
            if len(calls) > 1:
                call.graph.missed.clear()
            call.graph.warn_missed_budget()
        self._steps = _SETTLED
        is_minor = is_part(budget) and peak < MINOR_BYTES
        if allowed is not None and peak > allowed and len(calls) > 1 and not is_minor:
            n = len({call.graph for call in calls})
            warnings.warn(
                f"lowtide: {_counted(n, 'graph')} need{'s' if n == 1 else ''} {format_bytes(peak)} together, "
                f"{format_bytes(peak - allowed)} more than their budget (without lowtide {format_bytes(alone)}); "
                "no better division is known; " + describe_lowest_peak(peak, alone, parameters),
                stacklevel=2,
            )

    def _log(self, calls: Sequence[_Call], peak: int, alone: int, allowed: int | None) -> None:
        """Log a step's needs; with a budget as a warning, which shows without configuration."""
        outside = max(call.outside for call in calls)
        measured = None if self._allocated is None else self._allocated.peak_since()
        covered = min(1.0, peak / measured) if measured else 0.0
        _LOG.log(
            logging.INFO if allowed is None else logging.WARNING,
            "lowtide: step %d: %s planned, %s, together %s predicted (%s without lowtide)%s%s%s; "
            "TorchDynamo skipped %s",
            self._steps,
            _counted(len({call.graph for call in calls}), "graph"),
            _counted(len(calls), "call"),
            format_bytes(peak),
            format_bytes(alone),
            f", {format_bytes(outside)} kept outside of graphs" if outside else "",
            "" if allowed is None else f", budget {self._describe_budget(self.options.budget, allowed)}",
            f", {format_bytes(measured)} measured, {percent(covered)} in planned graphs" if measured else "",
            _counted(self.skipped, "frame"),
        )

    def _describe_budget(self, budget: GivenBudget, allowed: int) -> str:
        if is_part(budget):
            return format_bytes(allowed)
        parameters = sum(self._parameters.values())
        return f"{format_bytes(allowed + parameters)} with {format_bytes(parameters)} of parameters"

    def _is_too_low(self, calls: Sequence[_Call]) -> bool:
        """Return whether graphs recompute more than a division of the budget may need.

        False under Inductor, where compiling again costs more.
        """
        results = [call.planned.result for call in calls]
        extra = sum(result.extra_cost for result in results if result.shortfall is not None)
        return self.options.compiler == "eager" and extra > _MIN_TIME_AT_STAKE * sum(
            result.base_cost for result in results
        )

    def _divide(self, calls: Sequence[_Call], peak: int, allowed: int) -> None:
        """Give each graph a share, as if all saved bytes changed by the same factor.

        A budget below a graph's lower bound is raised to it; Inductor's bound after fusion is unknown.
        """
        fixed, target = max(call.outside for call in calls), allowed
        if allowed <= 0 or self.options.compiler == "eager":
            target = max(allowed, *(call.outside + call.lower_bound for call in calls))
        part = max(target - fixed, 0) / max(peak - fixed, 1)
        for graph in dict.fromkeys(call.graph for call in calls):
            places = [place for place, call in enumerate(calls) if call.graph is graph]
            held = max(calls[place].held_at(part) + gradients_after(calls, place) for place in places)
            others = max(int(part * bytes_of_later_calls(calls, place)) for place in places)
            if graph.recompile is not None:
                self._shares[graph] = (target, Share(max(target - held, 0), others))
        _LOG.info("planning %d graphs again within one budget of %s", len(self._shares), format_bytes(target))

    def _plan_again(self, graph: ProgramGraph, share: Share) -> None:
        found = None if graph.recompile is None else graph.recompile(share, graph.planned)
        if found is not None:
            graph.previous = graph.compiled, graph.planned
            graph.compiled, graph.planned = found


def _counted(n: int, noun: str) -> str:
    return f"{n} {noun}" if n == 1 else f"{n} {noun}s"


_MAX_PROGRAMS = 128
_programs: dict[int, SharedBudget] = {}


def shared_budget_of(given: object, options: Options) -> SharedBudget:
    program = _programs.get(id(given))
    if program is None or program.given is not given or (program.had_graphs and not program.graphs):
        _programs.pop(id(given), None)
        program = _programs[id(given)] = SharedBudget(options, given)
        if len(_programs) > _MAX_PROGRAMS:
            del _programs[next(iter(_programs))]
    return program


def programs_of(given: object) -> list[PlannedModule]:
    """Return the planned programs of graphs with equal options, which TorchDynamo may use for one another."""
    programs = [each for each in _programs.values() if each.given == given]
    own = {id(planned) for program in programs for graph in program.graphs for planned in graph.planned}
    return [each for each in planned_programs() if id(each) in own]


def count_skipped_frame(given: Any, name: str, reason: str) -> None:
    """Count a frame that TorchDynamo skipped; warn if no graph is planned."""
    program = shared_budget_of(given, Options.parse(given))
    program.skipped += 1
    if program.skipped == 1 and not program.graphs:
        warnings.warn(
            f"lowtide: TorchDynamo skipped {name}, which runs without a plan at any budget: {reason}", stacklevel=2
        )
