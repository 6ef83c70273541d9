"""Compile a captured graph with Inductor within its budget."""

import logging
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, islice
from math import inf
from pathlib import Path
from typing import Any

import torch
from torch.fx import GraphModule

from lowtide.core.errors import FingerprintError, UnsupportedError, one_line
from lowtide.core.techniques import NEED_BUDGET
from lowtide.engine.analysis.budget import Shortfall
from lowtide.engine.planning.budget import budget_bytes
from lowtide.frameworks.graph_file import GraphModel
from lowtide.frameworks.torch.compile.fusion.attempts import Attempt, least_excess
from lowtide.frameworks.torch.compile.fusion.fused_peaks import FusedPeaks, warn_of_need
from lowtide.frameworks.torch.compile.fusion.settings import BOTH_PASSES, NOT_CACHED, OwnNeed, own_need, settings
from lowtide.frameworks.torch.compile.kernels.forward_program import compile_forward
from lowtide.frameworks.torch.compile.kernels.kernel_partitioner import (
    ChunkedForm,
    KernelPartitioner,
    PlannedKernels,
    chunked_forms,
    kernels_or_none,
    plan_kernels,
)
from lowtide.frameworks.torch.compile.kernels.kernel_program import KernelProgram
from lowtide.frameworks.torch.compile.kernels.pass_recorders import ShowKernels
from lowtide.frameworks.torch.compile.partitioner import Partitioner
from lowtide.frameworks.torch.compile.step_passes import GivenGraph
from lowtide.frameworks.torch.internals.aot_autograd import patched_autograd
from lowtide.frameworks.torch.internals.dynamo import copied, takes_hooks
from lowtide.frameworks.torch.internals.inductor import compile_fx
from lowtide.frameworks.torch.planning.options import Options
from lowtide.frameworks.torch.planning.plan_folder import has_plan, load_plan
from lowtide.frameworks.torch.planning.plan_program import Share
from lowtide.frameworks.torch.planning.planned_program import PlannedModule, limit_to_bucket
from lowtide.frameworks.torch.planning.programs import (
    RegistryState,
    registry_state,
    restore_registry,
    set_reported_budget,
)
from lowtide.reporting.shortfall import describe

_NO_BUDGET = "without a budget, only their order is planned"
_NOT_TOGETHER = "both passes cannot be lowered together"
_FITS = "Inductor alone fits the budget"
_NOTHING_LOWER = "no plan found needs less than Inductor alone"
_MISSES = "no plan of kernels that was found fits the budget"
_WORTH_CHUNKS = 0.03
"""Extra time share from which forms in chunks are priced, which lowers both passes."""
_CLOSE = 0.02
"""Share of a budget by which exact peaks may differ from plans of kernels."""
_LOG = logging.getLogger("lowtide")
_Run = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class _Way:
    partitioner: Callable[[int], Partitioner]
    may_fail: bool = False
    """Whether an Inductor error ends only this way."""


def compile_with_inductor(
    module: GraphModule,
    example_inputs: Sequence[Any],
    options: Options,
    share: Share | None = None,
    name: str | None = None,
) -> _Run:
    """Compile a captured graph with Inductor, following plans; without gradients by `compile_forward`.

    Percentages refer to Inductor's own need. If that fits, or no plan needs less, Inductor compiles alone. `share`
    replaces the budget of a graph that runs with others; `name` is its earlier name.
    """
    needs_gradients = torch.is_grad_enabled() and any(
        isinstance(each, torch.Tensor) and each.requires_grad for each in example_inputs
    )
    if not needs_gradients:
        return compile_forward(module, example_inputs, options)
    given = GivenGraph(module, example_inputs)
    if options.budget is None or takes_hooks(example_inputs):
        # with hooks, the partitioner warns and leaves the graph to PyTorch
        return _compile(given, options, FusedPeaks(), Partitioner(options, because=_NO_BUDGET))
    limit_to_bucket(example_inputs)
    own = own_need(given, options)
    if own is None:
        by_ops = Partitioner(options, share=share, name=name, because=_NOT_TOGETHER)
        return _compile(given, options, FusedPeaks(), by_ops)
    if share is None:
        share = Share(budget_bytes(options.budget, own.peak, own.persistent))
    compiler = _Compiler(given, options, own, share, name)
    return compiler.compiled() if options.plans is None else compiler.followed(Path(options.plans))


def compile_step_with_inductor(given: GivenGraph, options: Options, name: str) -> tuple[_Run, PlannedModule]:
    """Compile a training step into a function of one list, which it empties; return it with its plan.

    Percentages refer to Inductor's step without recomputation. Raises UnsupportedError without two passes.
    """
    before = registry_state()
    try:
        as_it_is = replace(options, budget=None, allow=(), plans=None)
        own = own_need(given, options, KernelPartitioner(as_it_is, name=name, stores=False, is_planned=False))
        if own is None:
            raise UnsupportedError(f"{_NOT_TOGETHER}; use compiler='eager'")
        allowed = own.peak if options.budget is None else budget_bytes(options.budget, own.peak, own.persistent)
        compiler = _Compiler(given, options, own, Share(allowed), name)
        run, planned = compiler.chosen() if options.plans is None else compiler.following(Path(options.plans))
    finally:
        restore_registry(before)
    return run, planned[0]


@dataclass(frozen=True, slots=True)
class _Compiled:
    run: _Run
    peaks: FusedPeaks
    warned: Sequence[warnings.WarningMessage]
    registry_state: RegistryState


class _Compiler:
    def __init__(
        self,
        given: GivenGraph,
        options: Options,
        own: OwnNeed,
        share: Share,
        name: str | None,
    ) -> None:
        self._given = given
        self._options = options
        self._own = own
        self._allowed = share.allowed
        self._others = share.others
        self._name = name
        self._lowest_need = own.peak
        self._base_cost = 0.0
        """Time of the kernels without a plan; 0 if unknown."""
        self._plans: dict[tuple[KernelProgram, int], PlannedKernels] = {}

    def compiled(self) -> _Run:
        run, planned = self.chosen()
        for program in planned:
            set_reported_budget(program, self._allowed)
        return run

    def followed(self, folder: Path) -> _Run:
        way = self._saved_way(folder)
        if way is not None:
            return self._with_warning(*self._compiled_for(self._allowed, way))[0]
        by_ops = Partitioner(self._options, because="the saved plan is one of ops")
        return _compile(self._given, self._options, FusedPeaks(), by_ops)

    def following(self, folder: Path) -> tuple[_Run, Sequence[PlannedModule]]:
        """Follow the saved plan of kernels. Raises FingerprintError without one for these kernels."""
        way = self._saved_way(folder)
        if way is None:
            raise FingerprintError(f"no plan in {folder} is for the kernels of {self._name}; plan it again")
        return self._with_warning(*self._compiled_for(self._allowed, way))

    def _saved_way(self, folder: Path) -> _Way | None:
        for program, form in self._programs():
            if has_plan(program.graph, folder):
                settings = replace(self._options.settings, budget=self._allowed, transient=True, costs="given")
                result = load_plan(GraphModel(program.graph), folder, settings, over_budget=True)
                return _Way(partial(self._following, PlannedKernels(program, result), in_chunks=form))
        return None

    def chosen(self) -> tuple[_Run, Sequence[PlannedModule]]:
        best: Attempt[_Compiled | None] | None = None
        chosen: _Way | None = None
        before = registry_state()
        for way in self._ways() if self._own.peak > self._allowed or self._others else ():
            attempt = partial(self._attempt, way)
            found = least_excess(attempt(self._allowed), attempt)
            if best is None or max(found.excess_bytes, 0) < max(best.excess_bytes, 0):
                best, chosen = found, way
            if best.fits:
                break
        if best is None or chosen is None:
            return self._alone()
        restore_registry(before if best.compiled is None else best.compiled.registry_state)
        if best.compiled is not None:
            for each in best.compiled.warned:
                warnings.warn_explicit(each.message, each.category, each.filename, each.lineno)
            return self._with_warning(best.compiled.run, best.compiled.peaks)
        if self._allowed + best.excess_bytes < self._own.peak:
            return self._with_warning(*self._compiled_for(best.target, chosen))
        return self._alone()

    def _compiled_for(self, target: int, way: _Way) -> tuple[_Run, FusedPeaks]:
        peaks = FusedPeaks(self._allowed, silent=True)
        return self._compile(self._given, target, peaks, way), peaks

    def _ways(self) -> Iterator[_Way]:
        """Yield the ways to plan until one fits: kernels, kernels of forms in chunks, ops.

        If rounding is allowed, a form in chunks comes first if its plan is cheaper. Kernels whose plan clearly misses
        the budget come last, lowest peak first.
        """
        because = _NOT_TOGETHER
        programs = self._programs()
        known = list(islice(programs, 1))
        if known and "rounding" in self._options.techniques and self._extra_share(known[0][0]) > _WORTH_CHUNKS:
            known += islice(programs, 1)
            known.sort(key=lambda each: self._price(each[0]))  # stable
        late: list[tuple[int, _Way]] = []
        for program, form in chain(known, programs):
            because = _MISSES
            way = _Way(partial(self._for_kernels, program, in_chunks=form), may_fail=True)
            missed = self._missed_bytes(program)
            if missed > _CLOSE * self._allowed:
                late.append((missed, way))
            else:
                yield way
        for missed, way in sorted(late, key=lambda each: each[0]):
            if self._allowed + missed <= (1 + _CLOSE) * self._lowest_need:
                yield way
        if self._given.held is None:
            yield _Way(partial(self._for_ops, because=because))

    def _extra_share(self, program: KernelProgram) -> float:
        return self._price(program) / self._base_cost - 1 if self._base_cost else 0.0

    def _price(self, program: KernelProgram) -> float:
        """Infinite if the plan misses the budget."""
        result = self._planned(program, self._allowed).result
        return inf if result.shortfall is not None else result.base_cost + result.extra_cost

    def _missed_bytes(self, program: KernelProgram) -> int:
        try:
            shortfall = self._planned(program, self._allowed).result.shortfall
        except Exception:  # the attempt logs it and goes on
            return 0
        return 0 if shortfall is None else shortfall.missed_bytes

    def _planned(self, program: KernelProgram, target: int) -> PlannedKernels:
        key = program, target
        if key not in self._plans:
            self._plans[key] = plan_kernels(program, self._options, max(target, 1), self._others)
        return self._plans[key]

    def _programs(self) -> Iterator[tuple[KernelProgram, ChunkedForm | None]]:
        program = kernels_or_none(self._given, self._options, self._name)
        if program is None:
            return
        self._base_cost = program.base_cost
        yield program, None
        for form in chunked_forms(program, self._allowed):
            chunked = kernels_or_none(self._given, self._options, self._name, form)
            if chunked is not None:
                yield chunked, form

    def _for_kernels(self, program: KernelProgram, target: int, in_chunks: ChunkedForm | None = None) -> Partitioner:
        planned = self._planned(program, target)
        if in_chunks is not None:
            result = planned.result
            chunk_cost = max(0.0, result.base_cost - self._base_cost)
            result = replace(result, chunk_cost=chunk_cost, form=in_chunks.name, to_rounding=True)
            planned = replace(planned, result=result)
        return self._following(planned, target, in_chunks)

    def _following(self, planned: PlannedKernels, target: int, in_chunks: ChunkedForm | None = None) -> Partitioner:
        return KernelPartitioner(self._within(target), self._own.peak, self._name, planned, in_chunks=in_chunks)

    def _for_ops(self, target: int, because: str) -> Partitioner:
        share = Share(target, self._others) if self._others else None
        return Partitioner(self._within(target), self._own.peak, share, self._name, because=because)

    def _within(self, target: int) -> Options:
        return replace(self._options, budget=target + self._own.persistent)

    def _with_warning(self, run: _Run, peaks: FusedPeaks) -> tuple[_Run, Sequence[PlannedModule]]:
        if peaks.excess_bytes:
            warn_of_need(peaks.planned[0], peaks.excess_bytes, self._allowed + peaks.excess_bytes)
        return run, peaks.planned

    def _attempt(self, way: _Way, target: int) -> Attempt[_Compiled | None]:
        """Plan for a target; compile if kernels fit, or need less than the lowest known need."""
        peaks, before = FusedPeaks(self._allowed, stops_at=self._lowest_need, silent=True), registry_state()
        compiled = None
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            try:
                given = replace(self._given, module=copied(self._given.module))
                run = self._compile(given, target, peaks, way)
            except FingerprintError:
                raise
            except Exception as error:
                if not peaks.excess_bytes and not way.may_fail:
                    raise
                if not peaks.excess_bytes:
                    _LOG.info("a plan of kernels cannot be compiled: %s", one_line(error))
                    return Attempt(target, None, self._own.peak, target, is_least=True, is_free=True)
            else:
                compiled = _Compiled(run, peaks, warned, registry_state())
                self._lowest_need = min(self._lowest_need, self._allowed + max(peaks.beyond_bytes, 0))
        restore_registry(before)
        shortfalls = [each.result.shortfall for each in peaks.planned if each.result.shortfall is not None]
        results = [each.result for each in peaks.planned]
        is_free = not any(result.reruns or result.transfers.bytes_out for result in results)
        needed = max((next(iter(result.peak_bytes.values())) for result in results), default=target)
        return Attempt(target, compiled, peaks.beyond_bytes, needed, is_least=bool(shortfalls), is_free=is_free)

    def _compile(self, given: GivenGraph, target: int, peaks: FusedPeaks, way: _Way) -> _Run:
        return _compile(given, self._within(target), peaks, way.partitioner(target))

    def _alone(self) -> tuple[_Run, Sequence[PlannedModule]]:
        """Compile with Inductor alone; warn if that misses the budget."""
        peaks = FusedPeaks()
        free = tuple(sorted(self._options.techniques - NEED_BUDGET))
        options = replace(self._options, budget=None, allow=free, host_bandwidth=None, host_capacity=None)
        excess = self._own.peak - self._allowed
        because = _NOTHING_LOWER if excess > 0 else _FITS
        if self._given.held is None:
            alone = Partitioner(options, self._own.peak, name=self._name, because=because)
        else:
            alone = KernelPartitioner(options, self._own.peak, self._name, stores=False)
        run = _compile(self._given, options, peaks, alone)
        if excess > 0:
            why = self._why_nothing_fits(peaks.planned[0].graph.spaces[0].name)
            warn_of_need(peaks.planned[0], excess, self._own.peak, why)
        return run, peaks.planned

    def _why_nothing_fits(self, space: str) -> str:
        if self._allowed >= 0:
            return _NOTHING_LOWER
        shortfall = Shortfall(
            space=space,
            allowed_bytes=self._allowed,
            reached_bytes=self._own.peak,
            cause="persistent buffers",
            needed_bytes=self._own.persistent,
        )
        return describe(shortfall)


def _compile(
    given: GivenGraph,
    options: Options,
    peaks: FusedPeaks,
    partitioner: Partitioner | None = None,
) -> _Run:
    """Without a budget, record kernels to show them."""
    at_once = {} if options.budget is None or takes_hooks(given.inputs) else BOTH_PASSES
    record = ShowKernels(peaks) if options.budget is None and given.held is None else None
    changes = {**settings(options, peaks, partitioner, record), **given.changes}
    with patched_autograd({**NOT_CACHED, **at_once}):
        return compile_fx(
            given.module, given.inputs, changes, given.split(changes["custom_partitioner_fn"]), given.trace
        )
