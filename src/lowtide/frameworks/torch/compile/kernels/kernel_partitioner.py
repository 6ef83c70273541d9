"""The partitioner for plans of kernels, and the search for plans."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from torch.fx import GraphModule

from lowtide.core.errors import UnsupportedError, one_line
from lowtide.core.techniques import NEED_BUDGET, Techniques
from lowtide.engine.analysis.footprint import simulate
from lowtide.engine.plan import Plan
from lowtide.engine.planning.find_plan import find_plan
from lowtide.engine.planning.plan_file import result_with
from lowtide.engine.planning.program import CHUNKED, FormName
from lowtide.engine.planning.result import Result
from lowtide.engine.planning.settings import PlanSettings
from lowtide.frameworks.torch.compile.fusion.fused_peaks import FusedPeaks
from lowtide.frameworks.torch.compile.fusion.settings import schedule_only
from lowtide.frameworks.torch.compile.kernels.chunk_kernels import fuse_with_inductor
from lowtide.frameworks.torch.compile.kernels.kernel_choice import choice_of
from lowtide.frameworks.torch.compile.kernels.kernel_program import KernelProgram, join_passes
from lowtide.frameworks.torch.compile.kernels.pass_recorders import RecordPasses, forward_nodes_of, held_bytes
from lowtide.frameworks.torch.compile.kernels.recompute_kernels import follow_choice, save_reads_of_overwritten
from lowtide.frameworks.torch.compile.partitioner import Partitioner, partition_for_kernels, split_for_inductor
from lowtide.frameworks.torch.compile.step_passes import GivenGraph, add_rest, is_step, overwrite_early
from lowtide.frameworks.torch.emit.transfers import host_for
from lowtide.frameworks.torch.internals.joint_trace import made_once
from lowtide.frameworks.torch.planning.agreement import partners, require_agreement
from lowtide.frameworks.torch.planning.options import Options
from lowtide.frameworks.torch.planning.plan_folder import digest_of
from lowtide.frameworks.torch.planning.planned_program import PlannedModule
from lowtide.frameworks.torch.planning.program_forms import CompiledForm, ProgramForms
from lowtide.frameworks.torch.planning.programs import register
from lowtide.frameworks.torch.planning.read_program import read_program
from lowtide.frameworks.torch.rewrites.chunks.chunk_module import Chunking
from lowtide.frameworks.torch.rewrites.chunks.region_search import has_chunkable_product
from lowtide.frameworks.torch.rewrites.clean_up import DropDeadCode
from lowtide.frameworks.torch.rewrites.run import run_rewrites
from lowtide.frameworks.torch.rewrites.stored_values import CopyIntoConcatenations, StoreEarlyValues
from lowtide.frameworks.torch.rewrites.table import RUNS_AGAIN

_LOG = logging.getLogger("lowtide")


class NoFormError(Exception):
    """The program has no such form in chunks."""


@dataclass(frozen=True, slots=True)
class ChunkedForm:
    """A program with its largest products in chunks."""

    name: FormName
    chunking: Chunking


@dataclass(frozen=True, slots=True, eq=False)
class PlannedKernels:
    """A plan of a program's kernels."""

    program: KernelProgram
    result: Result


class KernelPartitioner(Partitioner):
    """Splits a joint graph as PyTorch does, and lets the backward pass recompute a plan's kernels.

    Without `stores`, Inductor decides which values it stores.
    """

    def __init__(
        self,
        options: Options,
        own_peak_bytes: int | None = None,
        name: str | None = None,
        planned: PlannedKernels | None = None,
        *,
        in_chunks: ChunkedForm | None = None,
        stores: bool = True,
        is_planned: bool = True,
    ) -> None:
        super().__init__(options, own_peak_bytes, name=name, is_planned=is_planned)
        self._planned = planned
        self._stores = stores
        self._form = in_chunks
        self.may_chunk = False

    def _partition(
        self, name: str, joint: GraphModule, joint_inputs: Sequence[Any], static: Sequence[int], given: dict[str, Any]
    ) -> tuple[PlannedModule, GraphModule, GraphModule]:
        whole = partition_for_kernels(joint, joint_inputs, given)
        whole = run_rewrites(whole, RUNS_AGAIN)
        if self._form is not None:
            form, plain = self._form, whole
            key = form.name, form.chunking.budget_bytes
            (whole,) = made_once(key, lambda: [_chunked(plain, static, self.options, form)])
        elif self._planned is None:
            self.may_chunk = self._may_chunk(whole)
        add_rest(whole, joint)
        if self._stores:
            whole = run_rewrites(whole, [StoreEarlyValues(), CopyIntoConcatenations()])
        if not is_step(joint):  # a step overwrites inputs after all their readers, recomputed ones included
            save_reads_of_overwritten(whole.graph)
        if self._planned is None:
            planned = self.plan(name, whole, joint, static)
        else:
            planned = self._follow(name, whole, self._planned)
            register(planned)
            if is_step(joint):
                overwrite_early(whole.graph)
        forward, backward = split_for_inductor(whole, joint, given["num_fwd_outputs"])
        return planned, forward, backward

    def _may_chunk(self, whole: GraphModule) -> bool:
        """Ranks that plan together use no chunks."""
        if partners(whole, self.options.same_on_all_ranks) is not None:
            return False
        return has_chunkable_product(whole.graph)

    def _follow(self, name: str, whole: GraphModule, planned: PlannedKernels) -> PlannedModule:
        """Follow a plan; raise FingerprintError if ranks disagree on it."""
        program, plan = planned.program, planned.result.plan
        together = partners(whole, self.options.same_on_all_ranks)
        if together is not None:
            require_agreement(program.graph, digest_of(plan), *together)
        if planned.result.reruns or planned.result.transfers.bytes_out:
            follow_choice(whole, choice_of(program, plan))
            whole = run_rewrites(whole, [DropDeadCode()])  # Inductor would run unused attention, and keep its result
        fewer = program.saved_bytes(Plan.baseline(program.graph)) - program.saved_bytes(plan)
        return PlannedModule(name, whole, program.graph, planned.result, whole, self.own_peak_bytes, fewer)


def _chunked(whole: GraphModule, static: Sequence[int], options: Options, form: ChunkedForm) -> GraphModule:
    written = read_program("chunks", whole, set(static), options)
    found = ProgramForms(written, set(static), options, form.chunking).form(form.name)
    if not isinstance(found, CompiledForm):
        raise NoFormError(f"it has no form {form.name}")
    return found.program.module


def kernel_program(
    given: GivenGraph,
    options: Options,
    name: str | None = None,
    in_chunks: ChunkedForm | None = None,
) -> KernelProgram | None:
    """Return a captured graph's kernels, lowered once; None if its passes cannot be compiled together."""
    peaks = FusedPeaks()
    recorder = RecordPasses(peaks)
    as_it_is = replace(options, budget=None, allow=(), plans=None)
    changes = {"reorder_for_peak_memory": False}
    partitioner = KernelPartitioner(as_it_is, name=name, in_chunks=in_chunks, is_planned=False)
    planned = schedule_only(given, as_it_is, peaks, recorder, partitioner, changes)
    if planned is None or len(recorder.passes) != len(planned.kernel_peaks):
        return None
    forward, backward = recorder.passes
    held, names = held_bytes(planned), forward_nodes_of(planned.source)
    program = join_passes(planned.name, forward, backward, held, names, by_value=True)
    graph = program.graph
    if "offload" in options.techniques:
        graph = host_for(graph, options.host_bandwidth, options.host_capacity).added_to(graph)
    return replace(program, graph=graph, may_chunk=partitioner.may_chunk)


def kernels_or_none(
    given: GivenGraph,
    options: Options,
    name: str | None,
    in_chunks: ChunkedForm | None = None,
) -> KernelProgram | None:
    """Return a graph's kernels; None, with the reason in the log, if they cannot be recorded."""
    try:
        return kernel_program(given, options, name, in_chunks)
    except Exception as error:  # Inductor's own errors have no common class
        _LOG.info("the kernels of %s are not planned: %s", name or "a graph", one_line(error))
        return None


def chunked_forms(program: KernelProgram, allowed: int) -> list[ChunkedForm]:
    """Return forms in chunks in the order to be tried."""
    if not program.may_chunk:
        return []
    chunking = replace(Chunking.for_fusion(fuse_with_inductor), budget_bytes=max(allowed, 0))
    return [ChunkedForm(name, chunking) for name in CHUNKED]


def plan_kernels(program: KernelProgram, options: Options, target: int, others: int = 0) -> PlannedKernels:
    """Return the cheapest plan found for a target in bytes, without static inputs.

    Other graphs use `others` bytes between the passes.
    """
    techniques = frozenset({"share"}) | (options.techniques & NEED_BUDGET)
    planned = _planned(program, options, techniques, target, others)
    if planned.result.transfers.bytes_out:
        try:
            choice_of(program, planned.result.plan)
        except UnsupportedError as error:
            _LOG.info("%s is planned without copies to the host: %s", program.graph.name, error)
            return _planned(program, options, techniques - {"offload"}, target, others)
    return planned


def _planned(
    program: KernelProgram, options: Options, techniques: Techniques, target: int, others: int
) -> PlannedKernels:
    settings = PlanSettings(
        budget=target, transient=True, techniques=techniques, effort=options.effort, addresses=False
    )
    found = find_plan(program.graph_with(others), settings)
    plan = replace(found.plan.without_claims(), graph_fingerprint=program.graph.fingerprint)
    plan = replace(plan, peak_bytes=simulate(program.graph, plan).peak_bytes)
    missed = found.shortfall
    if missed is not None:
        # recomputed kernels may fuse otherwise, so the engine's bounds do not hold
        missed = replace(missed, cause="not found", is_impossible=False, claim=None)
    result = result_with(program.graph, plan, settings, found.scheduler, missed, seconds=found.seconds)
    return PlannedKernels(program, replace(result, base_cost=program.base_cost))
