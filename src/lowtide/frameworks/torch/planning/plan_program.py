"""Find the plan of a compiled program, never worse than PyTorch alone."""

import time
from dataclasses import dataclass, replace
from pathlib import Path

from lowtide.engine.analysis.budget import Shortfall
from lowtide.engine.analysis.footprint import simulate
from lowtide.engine.graph import Graph
from lowtide.engine.plan import Plan, verify
from lowtide.engine.planning.budget import parse_budget
from lowtide.engine.planning.find_plan import find_plan
from lowtide.engine.planning.plan_best_form import plan_best_form
from lowtide.engine.planning.plan_file import result_with
from lowtide.engine.planning.result import Result
from lowtide.engine.planning.settings import PlanSettings
from lowtide.frameworks.graph_file import GraphModel
from lowtide.frameworks.torch.planning.agreement import partners, require_agreement, require_one_order
from lowtide.frameworks.torch.planning.options import Options, identity
from lowtide.frameworks.torch.planning.plan_folder import digest_of, has_plan, load_plan
from lowtide.frameworks.torch.planning.program_forms import ProgramForms
from lowtide.frameworks.torch.planning.read_program import ReadProgram


@dataclass(frozen=True, slots=True)
class Share:
    """Bytes for one graph of a program."""

    allowed: int
    """While the graph runs, without parameters."""
    others: int = 0
    """Of other graphs between its passes, without tensors shared with it."""


@dataclass(frozen=True, slots=True)
class PlannedChoice:
    program: ReadProgram
    result: Result
    own_peak: int | None = None
    fewer_saved_bytes: int = 0


def plan_program(
    written: ReadProgram,
    own: ReadProgram | None,
    options: Options,
    share: Share | None = None,
    forms: ProgramForms | None = None,
) -> PlannedChoice:
    """Return the best plan of a program in any form, or of PyTorch's `own`.

    Percentages refer to the peak of `own`. No plan exceeds it, or the bytes of `own` between the passes.
    """
    if own is None:
        settings, others = options.settings, 0
        if share is not None:
            settings, others = replace(settings, budget=share.allowed, transient=True), share.others
        program, result = _in_best_form(written, options, settings, others, forms)
        more = written.bytes_between_passes(Plan.baseline(written.graph)) - program.bytes_between_passes(result.plan)
        return PlannedChoice(program, result, fewer_saved_bytes=more if options.compiler == "inductor" else 0)
    baseline = Plan.baseline(own.graph)
    peak, between = own.peak_of(baseline), own.bytes_between_passes(baseline)
    settings = _within(options.settings, own, peak, share)
    if options.plans is not None:
        forms = None if forms is None else forms.within(settings)
        program, result = _from_folder(Path(options.plans), written, options, forms, own)
        return PlannedChoice(program, result, peak, between - program.bytes_between_passes(result.plan))
    left = 0 if share is None else share.others
    limits = PyTorchLimits(peak, between if not written.has_scalar_tangents() else None, left)
    program, result = _in_best_form(written, options, settings, left, forms)
    found = [(program, result)]
    if program is not written and limits.excess(program, result):
        found.append((written, _plan(written, options, settings, left)))
    if not any(limits.are_met(*each) for each in found) and limits.between is not None:
        most = settings.budget if isinstance(settings.budget, int) else peak
        left = max(left, most - limits.between)
        if options.techniques & {"recompute"}:
            bounded = settings if settings.budget is not None else replace(settings, budget=peak, transient=True)
            found.append((program, _plan_again(program, written, result, options, bounded, left)))
    if not any(limits.are_met(*each) for each in found):
        found.append((own, _plan(own, options, settings, left)))
    program, result = min(found, key=lambda each: limits.sort_key(*each))
    return PlannedChoice(program, result, peak, between - program.bytes_between_passes(result.plan))


def _in_best_form(
    written: ReadProgram,
    options: Options,
    settings: PlanSettings,
    others: int,
    forms: ProgramForms | None,
) -> tuple[ReadProgram, Result]:
    forms = None if forms is None else forms.within(settings)
    if options.plans is not None:
        return _from_folder(Path(options.plans), written, options, forms)
    if forms is None or partners(written.module, options.same_on_all_ranks) is not None:
        return written, _plan(written, options, settings, others)
    result = plan_best_form(forms, settings)
    program = forms.program_for(result.plan)
    return program, _plan_again(program, written, result, options, settings, others) if others else result


def _plan_again(
    program: ReadProgram, written: ReadProgram, before: Result, options: Options, settings: PlanSettings, others: int
) -> Result:
    result = _plan(program, options, settings, others, None if program is written else written.graph)
    return replace(result, chunk_cost=before.chunk_cost, left_whole=before.left_whole, to_rounding=before.to_rounding)


def _from_folder(
    folder: Path, written: ReadProgram, options: Options, forms: ProgramForms | None, own: ReadProgram | None = None
) -> tuple[ReadProgram, Result]:
    program = (
        own if own is not None and has_plan(own.graph, folder) and not has_plan(written.graph, folder) else written
    )
    in_forms = forms if program is written else None
    # a missed budget gives a warning later
    loaded = load_plan(in_forms or GraphModel(program.graph), folder, options.settings, over_budget=True)
    program = program if in_forms is None else in_forms.program_for(loaded.plan)
    together = partners(program.module, options.same_on_all_ranks)
    if together is not None:
        require_agreement(program.graph, digest_of(loaded.plan), *together)
    return program, loaded


def _within(settings: PlanSettings, own: ReadProgram, own_peak: int, share: Share | None) -> PlanSettings:
    if share is not None:
        return replace(settings, budget=min(share.allowed, max(own_peak, 0)), transient=True)
    space = own.graph.spaces[0].name
    allowed = parse_budget(settings.budget, own.graph, {space: own_peak}).allowed[space]
    if settings.budget is None or allowed is None or allowed < 0:
        return settings
    return replace(settings, budget=min(allowed, own_peak), transient=True)


def _plan(
    program: ReadProgram, options: Options, settings: PlanSettings, others: int, unmodified: Graph | None = None
) -> Result:
    graph = program.graph
    together = partners(program.module, options.same_on_all_ranks)
    if together is not None:
        require_agreement(graph, identity(options), *together)
    if not others:
        is_worth_it = options.compiler == "inductor"  # planning twice is cheap compared with compiling
        result = _closest_to_budget(graph, settings) if is_worth_it else find_plan(graph, settings, unmodified)
        require_one_order(program.module, graph, result.plan, options.same_on_all_ranks)
        return result
    started = time.perf_counter()
    found = plan_leaving_room(program, settings, others)
    verify(graph, found.plan, check_capacity=False)
    require_one_order(program.module, graph, found.plan, options.same_on_all_ranks)
    seconds = time.perf_counter() - started
    return result_with(graph, found.plan, settings, found.scheduler, found.shortfall, unmodified, seconds)


def _closest_to_budget(graph: Graph, settings: PlanSettings) -> Result:
    """Plan for the budget, and if it is below the lower bound, for the bound.

    The search gives up early on budgets out of reach, so a larger one may give a lower peak.
    """
    result = find_plan(graph, settings)
    space = graph.spaces[0].name
    allowed, least = result.budget.allowed[space], result.lower_bound_bytes[space]
    if result.shortfall is None or allowed is None or allowed >= least or "recompute" not in settings.techniques:
        return result
    closer = find_plan(graph, replace(settings, budget=least, transient=True))
    if closer.peak_bytes[space] >= result.peak_bytes[space]:
        return result
    known = result.plan
    plan = replace(closer.plan, claims=known.claims, lower_bound_bytes=known.lower_bound_bytes, status=known.status)
    missed = replace(result.shortfall, reached_bytes=closer.peak_bytes[space])
    return result_with(graph, plan, settings, closer.scheduler, missed, seconds=result.seconds + closer.seconds)


@dataclass(frozen=True, slots=True)
class PyTorchLimits:
    """Needs of PyTorch's own partition, which no plan may exceed."""

    peak: int
    between: int | None
    """Between the passes; None if nothing large runs there."""
    others: int

    def are_met(self, program: ReadProgram, result: Result) -> bool:
        return result.shortfall is None and not self.excess(program, result)

    def sort_key(self, program: ReadProgram, result: Result) -> tuple[bool, bool, float]:
        excess, fits = self.excess(program, result), result.shortfall is None
        most = max(_first_peak(result), program.bytes_between_passes(result.plan) + self.others)
        least = result.base_cost + result.extra_cost if fits and not excess else float(most)
        return excess > 0, not fits, float(excess) or least

    def excess(self, program: ReadProgram, result: Result) -> int:
        more = max(0, _first_peak(result) - self.peak)
        between = 0 if self.between is None else program.bytes_between_passes(result.plan) - self.between
        return max(more, between)


def _first_peak(result: Result) -> int:
    return next(iter(result.peak_bytes.values()))


@dataclass(frozen=True, slots=True)
class PlanWithRoom:
    plan: Plan
    scheduler: str
    shortfall: Shortfall | None


def plan_leaving_room(program: ReadProgram, settings: PlanSettings, others: int) -> PlanWithRoom:
    """Return a plan that leaves bytes for other graphs between the passes.

    If the budget is missed, also try to leave less: the others may need less later.
    """
    tight = _plan_with_room(program, settings, others)
    if tight.shortfall is None or not isinstance(settings.budget, int):
        return tight
    held = program.bytes_between_passes(tight.plan)
    goal = max(settings.budget, held)
    if goal - held >= others:
        return tight
    eased = _plan_with_room(program, replace(settings, budget=goal), goal - held)
    is_better = program.bytes_between_passes(eased.plan) <= held and program.peak_of(eased.plan) < program.peak_of(
        tight.plan
    )
    return replace(eased, shortfall=tight.shortfall) if is_better else tight


def _plan_with_room(program: ReadProgram, settings: PlanSettings, others: int) -> PlanWithRoom:
    found = find_plan(program.with_bytes_between(others), settings)
    plan = replace(found.plan.without_claims(), graph_fingerprint=program.graph.fingerprint)
    plan = replace(plan, peak_bytes=simulate(program.graph, plan).peak_bytes)
    return PlanWithRoom(plan, found.scheduler, found.shortfall)
