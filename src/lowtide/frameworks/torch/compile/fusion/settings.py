"""Inductor's configuration for plans, and its need without one."""

from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from torch.fx import GraphModule

from lowtide.engine.planning.budget import GivenBudget
from lowtide.frameworks.torch.compile.fusion.fused_peaks import FusedPeaks, StopAfterScheduling
from lowtide.frameworks.torch.compile.fusion.guard import FusionGuard
from lowtide.frameworks.torch.compile.fusion.knapsack import ExactKnapsack, RooflineRuntime
from lowtide.frameworks.torch.compile.fusion.order import CpuFunctions, MemoryOrder, Record
from lowtide.frameworks.torch.compile.partitioner import Partitioner
from lowtide.frameworks.torch.compile.step_passes import GivenGraph
from lowtide.frameworks.torch.internals.aot_autograd import patched_autograd
from lowtide.frameworks.torch.internals.dynamo import copied
from lowtide.frameworks.torch.internals.inductor import (
    CustomPartitionerFn,
    SchedulerPass,
    compile_until_scheduled,
    overlap_passes,
    patched_inductor,
)
from lowtide.frameworks.torch.internals.kernels import KernelNode, input_names
from lowtide.frameworks.torch.planning.options import Options, identity
from lowtide.frameworks.torch.planning.planned_program import PlannedModule
from lowtide.frameworks.torch.planning.programs import programs_planned, registry_state, restore_registry

NOT_CACHED = {"enable_autograd_cache": False}
"""Programs are planned when compiled; the code of kernels still comes from the cache."""


def settings(
    options: Options,
    peaks: FusedPeaks | None = None,
    partitioner: Partitioner | None = None,
    record: Record | None = None,
) -> dict[str, Any]:
    """Return changes of Inductor's configuration: our partitioner, and our kernel order as the last pass.

    With a budget but without permission to reorder, kernels keep the order of their FX nodes. `peaks` limits the
    kernels, by default to the bytes that plans leave. `record` gets each pass's kernels.
    """
    peaks = FusedPeaks() if peaks is None else peaks
    chosen: dict[str, Any] = {
        "custom_partitioner_fn": PlannedPartition(options, peaks, partitioner),
        "fx_graph_cache": False,  # cached graphs would not report their needs; a key takes seconds
    }
    if "reorder" in options.techniques or options.budget is not None:
        order = MemoryOrder(options, peaks, record)
        chosen["reorder_for_peak_memory"] = False  # it would reorder random draws
        chosen["reorder_for_compute_comm_overlap"] = True
        chosen["reorder_for_compute_comm_overlap_passes"] = [*overlap_passes(), order]
        chosen["_pre_fusion_custom_pass"] = FusionGuard(options, peaks)
    if options.budget is not None:
        chosen["allow_buffer_reuse"] = False  # storage kept for a later kernel would count as alive
    return chosen


@contextmanager
def inductor(budget: GivenBudget = None, *, allow: Iterable[str] | None = None, **more: Any) -> Generator[None]:
    """Make `torch.compile` with Inductor follow plans for all functions compiled in the context.

    Makes the choices of PyTorch's `activation_memory_budget` exact, and always saves random draws. Takes the options of
    the backend "lowtide", without `compiler`. The first call, which compiles, must be in the context. Raises UsageError
    for unknown options.
    """
    given = {"budget": budget, "allow": allow, **more, "compiler": "inductor"}
    deciding = {
        "activation_memory_budget_solver": ExactKnapsack(),
        "activation_memory_budget_runtime_estimator": RooflineRuntime(),
    }
    with patched_autograd({**NOT_CACHED, **deciding}), patched_inductor(settings(Options.parse(given))):
        yield


class PlannedPartition(CustomPartitionerFn):
    """Inductor's `custom_partitioner_fn`, following plans."""

    def __init__(self, options: Options, peaks: FusedPeaks, partitioner: Partitioner | None = None) -> None:
        self._options = options
        self._partition = partitioner or Partitioner(options)
        self._peaks = peaks

    def __call__(
        self, gm: GraphModule, joint_inputs: Sequence[object], **kwargs: Any
    ) -> tuple[GraphModule, GraphModule]:
        with programs_planned() as planned:
            forward, backward = self._partition(gm, joint_inputs, **kwargs)
        if planned:
            self._peaks.expect(planned[-1], forward, backward, kwargs["num_fwd_outputs"])
        return forward, backward

    def uuid(self) -> str:
        return f"{identity(self._options)} {self._peaks.identity}"


BOTH_PASSES = {"force_non_lazy_backward_lowering": True}
"""Compile both passes together, not backward at its first call."""


@dataclass(frozen=True, slots=True)
class OwnNeed:
    """Bytes needed without lowtide."""

    peak: int
    persistent: int


def own_need(given: GivenGraph, options: Options, partitioner: Partitioner | None = None) -> OwnNeed | None:
    """Return Inductor's own need for a captured graph; None if its passes cannot be compiled together."""
    peaks = FusedPeaks()
    as_it_is = replace(options, budget=None, allow=(), plans=None)
    partitioner = partitioner or Partitioner(as_it_is, is_planned=False)
    planned = schedule_only(given, as_it_is, peaks, _RecordPeaks(peaks), partitioner)
    if planned is None:
        return None
    space = planned.graph.spaces[0].name
    return OwnNeed(max(planned.kernel_peaks), planned.graph.persistent_bytes()[space])


def schedule_only(
    given: GivenGraph,
    options: Options,
    peaks: FusedPeaks,
    record: Any,
    partitioner: Partitioner | None = None,
    changes: Mapping[str, Any] | None = None,
) -> PlannedModule | None:
    """Partition, lower, fuse and order a captured graph without code generation; return its partition.

    `record` is a scheduler pass that reports kernel needs to `peaks`. Returns None if both passes cannot be compiled
    together. The registry of programs does not change.
    """
    end = StopAfterScheduling()
    partition = PlannedPartition(options, peaks, partitioner)
    configured = {
        "custom_partitioner_fn": partition,
        "reorder_for_compute_comm_overlap": True,
        "reorder_for_compute_comm_overlap_passes": [*overlap_passes(), record, end],
        "fx_graph_cache": False,
        **given.changes,
        **(changes or {}),
    }
    before = registry_state()
    try:
        with patched_autograd({**NOT_CACHED, **BOTH_PASSES}):
            split = given.split(partition)
            compile_until_scheduled(
                copied(given.module), given.inputs, configured, end.take_strides, split, given.trace
            )
    finally:
        restore_registry(before)
    is_whole = len(peaks.planned) == 1 and len(peaks.planned[0].kernel_peaks) == len(("forward", "backward"))
    return peaks.planned[0] if is_whole else None


class _RecordPeaks(SchedulerPass):
    def __init__(self, peaks: FusedPeaks) -> None:
        self._peaks = peaks

    def __call__(self, nodes: Sequence[KernelNode]) -> list[KernelNode]:
        if nodes:
            given = self._peaks.known_inputs(input_names())
            self._peaks.record_outputs(input_names())
            self._peaks.check(input_names(), CpuFunctions.of(nodes, None, given).peak_bytes)
        return list(nodes)
