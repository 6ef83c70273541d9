"""Compile a captured graph with Inductor within its budget."""

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch.fx import GraphModule

from lowtide.core.techniques import NEED_BUDGET
from lowtide.engine.analysis.shortfall import Shortfall  # noqa: TC001
from lowtide.engine.planning.budget import budget_bytes
from lowtide.frameworks.torch.compile.fusion.attempts import Attempt, least_excess
from lowtide.frameworks.torch.compile.fusion.fused_peaks import (
    FusedPeaks,
    StopAfterScheduling,
    reason_before_fusion,
    warn_of_need,
)
from lowtide.frameworks.torch.compile.fusion.settings import BOTH_PASSES, NOT_CACHED, OwnNeed, own_need, settings
from lowtide.frameworks.torch.compile.partitioner import Partitioner
from lowtide.frameworks.torch.internals.aot_autograd import patched_autograd
from lowtide.frameworks.torch.internals.dynamo import copied, takes_hooks
from lowtide.frameworks.torch.internals.inductor import compile_fx
from lowtide.frameworks.torch.planning.options import Options
from lowtide.frameworks.torch.planning.plan_program import Share
from lowtide.frameworks.torch.planning.planned_program import PlannedModule, limit_to_bucket
from lowtide.frameworks.torch.planning.programs import (
    RegistryState,
    registry_state,
    restore_registry,
    set_reported_budget,
)
from lowtide.frameworks.torch.rewrites.chunks.chunk_module import Chunking
from lowtide.frameworks.torch.rewrites.chunks.region_search import has_chunkable_product

_Run = Callable[..., Any]


def compile_with_inductor(
    module: GraphModule,
    example_inputs: Sequence[Any],
    options: Options,
    share: Share | None = None,
    name: str | None = None,
) -> _Run:
    """Compile a captured graph with Inductor, following plans.

    Percentages refer to Inductor's own need. If that fits, or no plan needs less, Inductor compiles alone. `share`
    replaces the budget of a graph that runs with others; `name` is its earlier name.
    """
    needs_gradients = torch.is_grad_enabled() and any(
        isinstance(each, torch.Tensor) and each.requires_grad for each in example_inputs
    )
    if options.budget is None or options.plans is not None or not needs_gradients or takes_hooks(example_inputs):
        return _compile(module, example_inputs, options, FusedPeaks())
    limit_to_bucket(example_inputs)
    own = own_need(module, example_inputs, options)
    if own is None:
        return _compile(module, example_inputs, options, FusedPeaks(), Partitioner(options, share=share, name=name))
    if share is None:
        share = Share(budget_bytes(options.budget, own.peak, own.persistent))
    return _Compiler(module, example_inputs, options, own, share, name).compiled()


@dataclass(frozen=True, slots=True)
class _Compiled:
    run: _Run
    peaks: FusedPeaks
    warned: Sequence[warnings.WarningMessage]
    registry_state: RegistryState


class _Compiler:
    def __init__(
        self,
        module: GraphModule,
        example_inputs: Sequence[Any],
        options: Options,
        own: OwnNeed,
        share: Share,
        name: str | None,
    ) -> None:
        self._module = module
        self._inputs = example_inputs
        self._options = options
        self._own = own
        self._allowed = share.allowed
        self._others = share.others
        self._name = name
        self._shortfall: Shortfall | None = None
        self._has_products = False
        self._lowest_need = own.peak

    def compiled(self) -> _Run:
        """Return the best compilation."""
        run, planned = self._chosen()
        for program in planned:
            set_reported_budget(program, self._allowed)
        return run

    def _chosen(self) -> tuple[_Run, Sequence[PlannedModule]]:
        if self._own.peak > self._allowed or self._others:
            before = registry_state()
            best = least_excess(self._attempt(self._allowed), self._attempt)
            chunking = Chunking.for_fusion() if not best.fits and self._has_products else None
            if chunking is not None:
                in_chunks = partial(self._attempt, in_chunks=chunking)
                chunks = least_excess(in_chunks(self._allowed), in_chunks)
                best, chunking = (chunks, chunking) if chunks.excess_bytes < best.excess_bytes else (best, None)
            restore_registry(before if best.compiled is None else best.compiled.registry_state)
            if best.compiled is not None:
                for each in best.compiled.warned:
                    warnings.warn_explicit(each.message, each.category, each.filename, each.lineno)
                return self._with_warning(best.compiled.run, best.compiled.peaks)
            if self._allowed + best.excess_bytes < self._own.peak:
                return self._closest(best.target, chunking)
        return self._alone()

    def _closest(self, target: int, in_chunks: Chunking | None) -> tuple[_Run, Sequence[PlannedModule]]:
        peaks = FusedPeaks(self._allowed, silent=True)
        run = self._compile(self._module, target, peaks, in_chunks)
        return self._with_warning(run, peaks)

    def _with_warning(self, run: _Run, peaks: FusedPeaks) -> tuple[_Run, Sequence[PlannedModule]]:
        if peaks.excess_bytes:
            why = None if self._shortfall is None else reason_before_fusion(self._shortfall)
            warn_of_need(peaks.planned[0], peaks.excess_bytes, self._allowed + peaks.excess_bytes, why)
        return run, peaks.planned

    def _attempt(self, target: int, in_chunks: Chunking | None = None) -> Attempt[_Compiled | None]:
        """Plan for a target; compile if the kernels fit, or need less than the lowest known need."""
        peaks, before = FusedPeaks(self._allowed, stops_at=self._lowest_need, silent=True), registry_state()
        compiled = None
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            try:
                run = self._compile(copied(self._module), target, peaks, in_chunks)
            except Exception:
                if not peaks.excess_bytes:
                    raise
            else:
                compiled = _Compiled(run, peaks, warned, registry_state())
                self._lowest_need = min(self._lowest_need, self._allowed + max(peaks.beyond_bytes, 0))
        restore_registry(before)
        devices = Chunking.for_fusion().trials.devices
        self._has_products |= any(has_chunkable_product(each.source.graph, devices) for each in peaks.planned)
        shortfalls = [each.result.shortfall for each in peaks.planned if each.result.shortfall is not None]
        self._shortfall = next(iter(shortfalls), self._shortfall)
        results = [each.result for each in peaks.planned]
        is_free = not any(result.reruns or result.transfers.bytes_out for result in results)
        needed = max((next(iter(result.peak_bytes.values())) for result in results), default=target)
        return Attempt(target, compiled, peaks.beyond_bytes, needed, is_least=bool(shortfalls), is_free=is_free)

    def _compile(self, module: GraphModule, target: int, peaks: FusedPeaks, in_chunks: Chunking | None) -> _Run:
        options = replace(self._options, budget=target + self._own.persistent)
        share = Share(target, self._others) if self._others else None
        partitioner = Partitioner(options, self._own.peak, share=share, name=self._name, in_chunks=in_chunks)
        return _compile(module, self._inputs, options, peaks, partitioner)

    def _alone(self) -> tuple[_Run, Sequence[PlannedModule]]:
        """Let Inductor compile the graph, ordering only its kernels; warn if that misses the budget."""
        peaks = FusedPeaks()
        free = tuple(sorted(self._options.techniques - NEED_BUDGET))
        options = replace(self._options, budget=None, allow=free, host_bandwidth=None, host_capacity=None)
        alone = Partitioner(options, self._own.peak, name=self._name)
        run = _compile(self._module, self._inputs, options, peaks, alone)
        excess = self._own.peak - self._allowed
        if excess > 0:
            why = "no plan found needs less than Inductor alone"
            detail = "" if self._shortfall is None else reason_before_fusion(self._shortfall)
            warn_of_need(peaks.planned[0], excess, self._own.peak, "; ".join(filter(None, (why, detail))))
        return run, peaks.planned


def _compile(
    module: GraphModule,
    inputs: Sequence[Any],
    options: Options,
    peaks: FusedPeaks,
    partitioner: Partitioner | None = None,
) -> _Run:
    at_once = {} if options.budget is None or takes_hooks(inputs) else BOTH_PASSES
    end = StopAfterScheduling(peaks) if at_once and peaks.may_stop else None
    with patched_autograd({**NOT_CACHED, **at_once}):
        return compile_fx(module, inputs, settings(options, peaks, partitioner, end), end)
