"""The plan of a program of the compiler: never more than PyTorch needs alone, made now or read from a folder."""

import time
from dataclasses import dataclass, replace
from pathlib import Path

from lowtide.engine.graph import Graph
from lowtide.engine.plan import Plan, verify
from lowtide.engine.planning.budget import parse_budget
from lowtide.engine.planning.find_plan import find_plan
from lowtide.engine.planning.plan_best_form import plan_best_form, plan_in_chunks
from lowtide.engine.planning.plan_file import result_with
from lowtide.engine.planning.result import Result
from lowtide.engine.planning.settings import PlanSettings
from lowtide.frameworks.graph_file import GraphModel
from lowtide.frameworks.torch.compile.beside_others import plan_beside
from lowtide.frameworks.torch.compile.distributed.agreement import partners, require_agreement, require_one_order
from lowtide.frameworks.torch.compile.distributed.plan_folder import digest_of, has_plan, load_plan
from lowtide.frameworks.torch.compile.identity import identity
from lowtide.frameworks.torch.compile.options import Options
from lowtide.frameworks.torch.compile.own_limits import OwnLimits
from lowtide.frameworks.torch.compile.program_forms import ProgramForms
from lowtide.frameworks.torch.compile.read_program import ReadProgram


@dataclass(frozen=True, slots=True)
class Share:
    """What a graph of a larger program may need, in bytes."""

    allowed: int
    """While it runs, beside its parameters."""
    others: int = 0
    """What other graphs need between its two passes, beside what they take from it and give back to it."""


@dataclass(frozen=True, slots=True)
class PlannedChoice:
    """A program, its plan, and what PyTorch makes of it alone."""

    program: ReadProgram
    result: Result
    own_peak: int | None = None
    """What PyTorch's program needs; None where it is not known."""
    own_keeps_more: int = 0
    """What it keeps between its passes beyond what the plan does."""


def plan_program(
    written: ReadProgram,
    own: ReadProgram | None,
    options: Options,
    share: Share | None = None,
    forms: ProgramForms | None = None,
    *,
    only_in_chunks: bool = False,
) -> PlannedChoice:
    """Return the plan of a program, of its forms in chunks, or of what PyTorch makes of it alone, `own`.

    Percentages are of that peak, and no plan needs more: neither while the program runs, nor of what it keeps between
    its passes. Where the program has no such plan in any form, or none within the budget, `own` is planned, too.
    """
    if own is None:
        settings, others = options.settings, 0
        if share is not None:
            settings, others = replace(settings, budget=share.allowed, transient=True), share.others
        program, result = _in_best_form(written, options, settings, others, forms, only_in_chunks=only_in_chunks)
        more = written.held_between(Plan.baseline(written.graph)) - program.held_between(result.plan)
        return PlannedChoice(program, result, own_keeps_more=more if options.compiler == "inductor" else 0)
    baseline = Plan.baseline(own.graph)
    peak, between = own.peak_of(baseline), own.held_between(baseline)
    settings = _within(options.settings, own, peak, share)
    if options.plans is not None:
        forms = None if forms is None else forms.within(settings)
        program, result = _from_folder(Path(options.plans), written, options, forms, own)
        return PlannedChoice(program, result, peak, between - program.held_between(result.plan))
    left = 0 if share is None else share.others
    limits = OwnLimits(peak, between if not written.returns_only_numbers() else None, left)
    program, result = _in_best_form(written, options, settings, left, forms)
    found = [(program, result)]
    if program is not written and limits.excess(program, result):
        found.append((written, _plan(written, options, settings, left)))
    if not any(limits.hold(*each) for each in found) and limits.between is not None:
        most = settings.budget if isinstance(settings.budget, int) else peak
        left = max(left, most - limits.between)
        if options.techniques & {"recompute"}:
            bounded = settings if settings.budget is not None else replace(settings, budget=peak, transient=True)
            found.append((program, _plan_again(program, written, result, options, bounded, left)))
    if not any(limits.hold(*each) for each in found):
        found.append((own, _plan(own, options, settings, left)))
    program, result = min(found, key=lambda each: limits.rank(*each))
    return PlannedChoice(program, result, peak, between - program.held_between(result.plan))


def _in_best_form(
    written: ReadProgram,
    options: Options,
    settings: PlanSettings,
    others: int,
    forms: ProgramForms | None,
    *,
    only_in_chunks: bool = False,
) -> tuple[ReadProgram, Result]:
    """Return the plan of a program, and the form of it that the plan is for; ranks that plan together keep one form."""
    forms = None if forms is None else forms.within(settings)
    if options.plans is not None:
        return _from_folder(Path(options.plans), written, options, forms)
    if forms is None or partners(written.module, options.same_on_all_ranks) is not None:
        return written, _plan(written, options, settings, others)
    result = plan_in_chunks(forms, settings) if only_in_chunks else plan_best_form(forms, settings)
    if result is None:
        return written, _plan(written, options, settings, others)
    program = forms.program_for(result.plan)
    return program, _plan_again(program, written, result, options, settings, others) if others else result


def _plan_again(
    program: ReadProgram, written: ReadProgram, before: Result, options: Options, settings: PlanSettings, others: int
) -> Result:
    """Plan a form of a program beside others; what is known of the form is said again."""
    result = _plan(program, options, settings, others, None if program is written else written.graph)
    return replace(result, chunk_cost=before.chunk_cost, left_whole=before.left_whole, to_rounding=before.to_rounding)


def _from_folder(
    folder: Path, written: ReadProgram, options: Options, forms: ProgramForms | None, own: ReadProgram | None = None
) -> tuple[ReadProgram, Result]:
    """Return the plan that was saved, for the program as it is written, as PyTorch makes it, or in chunks."""
    program = (
        own if own is not None and has_plan(own.graph, folder) and not has_plan(written.graph, folder) else written
    )
    in_forms = forms if program is written else None
    # a plan that misses its budget is warned of
    loaded = load_plan(in_forms or GraphModel(program.graph), folder, options.settings, over_budget=True)
    program = program if in_forms is None else in_forms.program_for(loaded.plan)
    together = partners(program.module, options.same_on_all_ranks)
    if together is not None:
        require_agreement(program.graph, digest_of(loaded.plan), *together)
    return program, loaded


def _within(settings: PlanSettings, own: ReadProgram, own_peak: int, share: Share | None) -> PlanSettings:
    """Return settings whose budget is in bytes, and at most what the program takes without lowtide."""
    if share is not None:
        return replace(settings, budget=min(share.allowed, max(own_peak, 0)), transient=True)
    space = own.graph.spaces[0].name
    allowed = parse_budget(settings.budget, own.graph, {space: own_peak}).allowed[space]
    if settings.budget is None or allowed is None or allowed < 0:
        return settings
    return replace(settings, budget=min(allowed, own_peak), transient=True)


def _plan(
    program: ReadProgram, options: Options, settings: PlanSettings, others: int, untouched: Graph | None = None
) -> Result:
    """Return a plan made now, of another form than the `untouched` one if that is given; ranks agree on it first."""
    graph = program.graph
    together = partners(program.module, options.same_on_all_ranks)
    if together is not None:
        require_agreement(graph, identity(options), *together)
    if not others:
        is_worth_it = options.compiler == "inductor"  # beside whose work planning twice is little
        result = _closest_to_budget(graph, settings) if is_worth_it else find_plan(graph, settings, untouched)
        require_one_order(program.module, graph, result.plan, options.same_on_all_ranks)
        return result
    started = time.perf_counter()
    found = plan_beside(program, settings, others)
    verify(graph, found.plan, check_capacity=False)
    require_one_order(program.module, graph, found.plan, options.same_on_all_ranks)
    seconds = time.perf_counter() - started
    return result_with(graph, found.plan, settings, found.scheduler, found.shortfall, untouched, seconds)


def _closest_to_budget(graph: Graph, settings: PlanSettings) -> Result:
    """Return the plan that settings ask for; where the budget is less than any plan needs, one for the least of that.

    A budget that is known to be out of reach is not searched for long, so that a larger one may reach less.
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
