"""One budget for a program of several graphs: what others keep is known once a step ran, then all are planned anew.

So it is where another graph joins later, for a batch of another shape for instance.
"""

import logging
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakSet

import torch

from lowtide.core.units import format_bytes
from lowtide.engine.planning.budget import GivenBudget, budget_bytes, is_part
from lowtide.frameworks.torch.compile.missed_budgets import least_reached
from lowtide.frameworks.torch.compile.options import Options
from lowtide.frameworks.torch.compile.plan_program import Share
from lowtide.frameworks.torch.compile.planned_program import MINOR_BYTES, PlannedModule
from lowtide.frameworks.torch.compile.programs import forget, remember
from lowtide.frameworks.torch.internals import pytree
from lowtide.frameworks.torch.internals.allocators import AllocatorStart
from lowtide.frameworks.torch.internals.aot_autograd import backward_of, saved_by, saved_outside
from lowtide.frameworks.torch.internals.tensors import storage_bytes, storage_key

_WORTH_ANEW = 0.01
"""The part of a step's time that must be at stake before all is planned and compiled anew to save it."""
_LOG = logging.getLogger("lowtide")
Run = Callable[..., Any]
Again = Callable[[Share, list[PlannedModule]], tuple[Run, list[PlannedModule]] | None]
"""Plans a graph within a share, in place of how it was planned before, and compiles it; None where it cannot be."""
Storages = dict[int, int]
"""Bytes by storage."""


@dataclass(slots=True, eq=False)
class _Call:
    """One call of a graph that awaits its backward pass."""

    graph: "ProgramGraph"
    held: int
    """What calls before it, and what runs outside of graphs before it, keep while it runs."""
    outside: int
    """What of that is kept outside of graphs, whatever is planned."""
    kept: Storages
    """What it keeps itself."""
    own_kept: int
    """What it would keep without lowtide."""
    gradients: int
    """What its backward pass leaves."""
    given: Storages
    """What it is given."""
    made: Storages
    """What it returns."""
    tangents: int
    """The gradients that its backward pass starts from."""


@dataclass(eq=False)
class ProgramGraph:
    """One graph of a program: what runs it, and what makes that anew within a share of the budget."""

    program: "ProgramStep"
    planned: list[PlannedModule]
    compiled: Run
    again: Again | None
    """Plans and compiles the graph once more; None where it cannot be."""
    missed: list[str]
    """What there is to say of the whole budget, which it misses, once it is known that no other graph shares it."""
    before: tuple[Run, list[PlannedModule]] | None = None
    """What ran before it was planned anew, as long as it is not known whether that was better."""
    is_known: bool = False
    """Whether the program was looked at as a whole since the graph joined it."""

    def __call__(self, inputs: Sequence[Any]) -> Any:
        """Run the graph, and note what it keeps as long as that is to be known."""
        if not self.program.is_settled:
            return self.program.run(self, inputs)
        if not self.is_known:
            return self.program.run_new(self, inputs)
        self.say_missed()
        return self.compiled(*inputs)

    def say_missed(self) -> None:
        """Warn of what is to be said, once."""
        missed, self.missed = self.missed, []
        for message in missed:
            warnings.warn(message, stacklevel=3)

    def kept(self, saved: Sequence[torch.Tensor]) -> Storages:
        """Return the storages of what the graph saved, as large as at the sizes that it is planned at.

        Where hooks made other tensors of what it saves, those count as they are.
        """
        (planned,) = self.planned
        if len(saved) != len(planned.saved_bytes):
            return _storages(saved)
        sizes = zip(saved, planned.saved_bytes, strict=True)
        return {storage_key(each): int(storage_bytes(each) * size / max(each.nbytes, 1)) for each, size in sizes}

    def go_back(self) -> None:
        """Run what ran before the graph was planned anew."""
        if self.before is not None:
            forget(self.planned)
            self.compiled, self.planned = self.before
            for planned in self.planned:
                remember(planned)


@dataclass(eq=False)
class ProgramStep:
    """The graphs that were compiled with the same options, and the first steps that they run in."""

    options: Options
    given: object = None
    """The options as the user gave them: what was compiled with the same object is one program."""
    graphs: WeakSet["ProgramGraph"] = field(default_factory=WeakSet["ProgramGraph"])
    """Those that still can run."""
    had_graphs: bool = False
    skipped: int = 0
    """Frames that TorchDynamo left alone."""
    _calls: list[_Call] = field(default_factory=list[_Call])
    _open: list[_Call] = field(default_factory=list[_Call])
    _parameters: Storages = field(default_factory=dict[int, int])
    _shares: dict[ProgramGraph, tuple[int, Share]] = field(default_factory=dict["ProgramGraph", tuple[int, Share]])
    _steps: int = 0
    """How many are known of the program as it is: -1 where the one under way is not known from its start."""
    _awaited: WeakSet[ProgramGraph] = field(default_factory=WeakSet[ProgramGraph])
    """Graphs without which a step says nothing new."""
    _allocated: AllocatorStart | None = None
    """What the allocator held when the step began; None on the CPU, whose allocator keeps no account."""
    _first_peak: int | None = None
    """What all graphs needed together before they were planned anew."""

    def add(
        self,
        planned: list[PlannedModule],
        compiled: Run,
        again: Again | None,
        missed: list[str],
    ) -> "ProgramGraph":
        """Return a graph that was compiled, as one of the program; `missed` is what to say where it is the only one."""
        graph = ProgramGraph(self, planned, compiled, again, missed)
        self.graphs.add(graph)
        self.had_graphs = True
        return graph

    @property
    def is_settled(self) -> bool:
        """Whether nothing is to be found out any more."""
        return self._steps > 2

    def run(self, graph: ProgramGraph, inputs: Sequence[Any]) -> Any:
        """Run a graph in one of the first steps."""
        given = _storages(inputs)
        if not self._calls:
            self._allocated = AllocatorStart.of(inputs)
        self._parameters.update(_storages([each for each in inputs if isinstance(each, torch.nn.Parameter)]))
        before: Storages = {key: size for call in self._open for key, size in call.kept.items()}
        beside = _storages(saved_outside(inputs))
        outside = sum(size for key, size in beside.items() if key not in given and key not in before)
        held = outside + sum(size for key, size in before.items() if key not in given)
        if graph in self._shares:
            most, share = self._shares.pop(graph)
            self._replan(graph, Share(max(0, min(most - held, share.allowed)), share.others))
        result = graph.compiled(*inputs)
        graph.is_known = True
        node = backward_of(result)
        if node is None or len(graph.planned) != 1:
            graph.say_missed()
            return result
        kept = {key: size for key, size in graph.kept(saved_by(node)).items() if key not in self._parameters}
        gradients = sum(_storages([each for each in inputs if isinstance(each, torch.nn.Parameter)]).values())
        own_kept = sum(kept.values()) + graph.planned[0].own_keeps_more
        made: list[torch.Tensor] = [each for each in pytree.tree_leaves(result) if isinstance(each, torch.Tensor)]
        tangents = sum(_storages([each for each in made if each.requires_grad]).values())
        call = _Call(graph, held, outside, kept, own_kept, gradients, given, _storages(made), tangents)
        self._calls.append(call)
        self._open.append(call)

        def ended(*_gradients: object) -> None:
            self._ended(call)

        node.register_hook(ended)
        return result

    def run_new(self, graph: ProgramGraph, inputs: Sequence[Any]) -> Any:
        """Run a graph that joined a program that was settled; where it trains, the program is looked at once more."""
        graph.is_known = True
        result = graph.compiled(*inputs)
        if graph.again is None or backward_of(result) is None:
            graph.say_missed()
            return result
        self._steps, self._first_peak = -1, None
        self._awaited.add(graph)
        return result

    def _ended(self, call: _Call) -> None:
        if call in self._open:
            self._open.remove(call)
            if not self._open:
                self._end_step()

    def _end_step(self) -> None:
        """Say what the step came to; after the first, divide the budget where the program needs more than that, or less
        at a price."""
        calls, self._calls = self._calls, []
        is_whole = self._steps >= 0
        self._steps = max(self._steps, 0)
        if not is_whole or (self._awaited and not any(call.graph in self._awaited for call in calls)):
            return
        self._steps += 1
        self._awaited.clear()
        peak = _peak(calls, own=False)
        alone = _peak(calls, own=True)
        budget, parameters = self.options.budget, sum(self._parameters.values())
        allowed = None if budget is None else budget_bytes(budget, alone, parameters)
        outside = max(call.outside for call in calls)
        _LOG.log(
            logging.INFO if allowed is None else logging.WARNING,  # whoever gives a budget is told without asking
            "lowtide: step %d: %s planned, %s, together %s predicted (%s without lowtide)%s%s%s; "
            "TorchDynamo skipped %s",
            self._steps,
            _counted(len({call.graph for call in calls}), "graph"),
            _counted(len(calls), "call"),
            format_bytes(peak),
            format_bytes(alone),
            f", {format_bytes(outside)} of it kept outside of graphs" if outside else "",
            "" if allowed is None else f", budget {_written(budget, allowed, parameters)}",
            self._measured_beside(peak),
            _counted(self.skipped, "frame"),
        )
        if self._steps == 1 and allowed is not None and len(calls) > 1 and (peak > allowed or self._is_too_low(calls)):
            self._divide(calls, peak, allowed)
            self._awaited.update(self._shares)
            self._first_peak = peak
        else:
            if self._first_peak is not None and peak >= self._first_peak and (allowed is None or peak > allowed):
                _LOG.info("together they need no less so; going back to the plans of the first step")
                for call in calls:
                    call.graph.go_back()
                peak = self._first_peak
            for call in calls:
                call.graph.before = None
                if len(calls) > 1:
                    call.graph.missed.clear()
                call.graph.say_missed()
            self._steps = 3
            is_minor = is_part(budget) and peak < MINOR_BYTES
            if allowed is not None and peak > allowed and len(calls) > 1 and not is_minor:
                n = len({call.graph for call in calls})
                warnings.warn(
                    f"lowtide: {_counted(n, 'graph')} need{'s' if n == 1 else ''} {format_bytes(peak)} together, "
                    f"{format_bytes(peak - allowed)} more than their budget (without lowtide {format_bytes(alone)}); "
                    "no better division is known; " + least_reached(peak, alone, parameters),
                    stacklevel=2,
                )

    def _is_too_low(self, calls: Sequence[_Call]) -> bool:
        """Tell whether graphs that miss the budget alone run by the plans of their least peaks, which costs time.

        All together may leave them more. Under Inductor kernels are what counts, and another compilation costs more.
        """
        results = [planned.result for call in calls for planned in call.graph.planned]
        again = sum(result.extra_cost for result in results if result.shortfall is not None)
        return self.options.compiler == "eager" and again > _WORTH_ANEW * sum(result.base_cost for result in results)

    def _measured_beside(self, predicted: int) -> str:
        """Return the measured peak of the step that ended, and the share of it that planned graphs cover."""
        peak = None if self._allocated is None else self._allocated.peak_since()
        if not peak:
            return ""
        return f", {format_bytes(peak)} measured, {min(1.0, predicted / peak):.0%} of it in planned graphs"

    def _divide(self, calls: Sequence[_Call], peak: int, allowed: int) -> None:
        """Give every graph what is left to it, if all keep less or more in proportion, but for what no plan changes.

        A budget below what one of them needs at least is divided as if it were that; what fused kernels need at least
        is not known.
        """
        fixed, aim = max(call.outside for call in calls), allowed
        if allowed <= 0 or self.options.compiler == "eager":
            aim = max(allowed, *(call.outside + _least(call.graph) for call in calls))
        part = max(aim - fixed, 0) / max(peak - fixed, 1)
        for graph in dict.fromkeys(call.graph for call in calls):
            places = [place for place, call in enumerate(calls) if call.graph is graph]
            held = max(_scaled(calls[place], part) + _gradients_after(calls, place) for place in places)
            others = max(int(part * _others(calls, place)) for place in places)
            if graph.again is not None:
                self._shares[graph] = (aim, Share(max(aim - held, 0), others))
        _LOG.info("planning %d graphs anew within one budget of %s", len(self._shares), format_bytes(aim))

    def _replan(self, graph: ProgramGraph, share: Share) -> None:
        found = None if graph.again is None else graph.again(share, graph.planned)
        if found is not None:
            graph.before = graph.compiled, graph.planned
            graph.compiled, graph.planned = found


def _counted(n: int, what: str) -> str:
    return f"{n} {what}" if n == 1 else f"{n} {what}s"


def _written(budget: GivenBudget, allowed: int, parameters: int) -> str:
    """Return what a budget allows; bytes are for parameters, too."""
    if is_part(budget):
        return format_bytes(allowed)
    return f"{format_bytes(allowed + parameters)} with {format_bytes(parameters)} of parameters"


def _peak(calls: Sequence[_Call], *, own: bool) -> int:
    """Return what calls need together that run one in another."""
    peak = held = 0
    for place, call in enumerate(calls):
        (planned,) = call.graph.planned
        need = planned.predicted_peak_bytes[planned.graph.spaces[0].name]
        if own and planned.own_peak_bytes is not None:
            need = planned.own_peak_bytes
        before = held + call.outside if own else call.held
        peak = max(peak, before + need + _gradients_after(calls, place))
        held += call.own_kept
    return peak


def _others(calls: Sequence[_Call], place: int) -> int:
    """Return what later calls need beside a call's outputs, their gradients, and what it keeps.

    What they take of the outputs, and the gradients that they end with, are in what they need themselves.
    """
    beside, later = calls[place], calls[place + 1 :]
    most, kept = 0, Storages()
    for after, call in enumerate(later):
        (planned,) = call.graph.planned
        need = planned.predicted_peak_bytes[planned.graph.spaces[0].name]
        before = max(0, call.held - beside.held - sum(beside.kept.values()))
        shared = sum(size for key, size in beside.made.items() if key in call.given or key in kept)
        most = max(most, before + need + _gradients_after(later, after) - shared - beside.tangents)
        kept |= call.kept
    return most


def _scaled(call: _Call, part: float) -> int:
    """Return what is held while a call runs, if graphs keep a part of what they do, or more than all of it."""
    return call.outside + int(part * (call.held - call.outside))


def _least(graph: ProgramGraph) -> int:
    """Return what no plan of a graph can need less than, before kernels are fused; 0 where that is not known."""
    (planned,) = graph.planned
    return planned.result.lower_bound_bytes.get(planned.graph.spaces[0].name, 0)


def _gradients_after(calls: Sequence[_Call], place: int) -> int:
    """Return what the backward passes of later calls leave, which run before that of the call at a place."""
    return sum(call.gradients for call in calls[place + 1 :])


def _storages(values: Sequence[Any]) -> Storages:
    return {storage_key(each): storage_bytes(each) for each in values if isinstance(each, torch.Tensor)}


_MOST_PROGRAMS = 128
_programs: dict[int, ProgramStep] = {}


def program_of(given: object, options: Options) -> ProgramStep:
    """Return the program that graphs belong to that are compiled with options given as one object."""
    program = _programs.get(id(given))
    if program is None or program.given is not given or (program.had_graphs and not program.graphs):
        _programs.pop(id(given), None)
        program = _programs[id(given)] = ProgramStep(options, given)
        if len(_programs) > _MOST_PROGRAMS:
            del _programs[next(iter(_programs))]
    return program


def note_skipped(given: Any, name: str, reason: str) -> None:
    """Count a frame that TorchDynamo left alone; warns of it where no graph of the program was planned so far."""
    program = program_of(given, Options.parse(given))
    program.skipped += 1
    if program.skipped == 1 and not program.graphs:
        warnings.warn(
            f"lowtide: TorchDynamo skipped {name}, which runs without a plan at any budget: {reason}", stacklevel=2
        )
