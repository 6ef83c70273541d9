"""Inductor's configuration under which it follows a plan."""

from collections.abc import Generator, Iterable
from contextlib import contextmanager
from typing import Any

from lowtide.engine.planning.budget import GivenBudget
from lowtide.frameworks.torch.compile.fusion.end_scheduled import EndScheduled
from lowtide.frameworks.torch.compile.fusion.fused_peaks import FusedPeaks
from lowtide.frameworks.torch.compile.fusion.guard import FusionGuard
from lowtide.frameworks.torch.compile.fusion.knapsack import ExactKnapsack, RooflineRuntime
from lowtide.frameworks.torch.compile.fusion.order import MemoryOrder
from lowtide.frameworks.torch.compile.fusion.partition import PlannedPartition
from lowtide.frameworks.torch.compile.options import Options
from lowtide.frameworks.torch.compile.partitioner import Partitioner
from lowtide.frameworks.torch.internals.aot_autograd import patched_autograd
from lowtide.frameworks.torch.internals.inductor import overlap_passes, patched_inductor

NOT_CACHED = {"enable_autograd_cache": False}
"""Every program is planned where it is compiled, so that its plan can be shown; kernels still come from the cache."""


def settings(
    options: Options,
    peaks: FusedPeaks | None = None,
    partitioner: Partitioner | None = None,
    end: EndScheduled | None = None,
) -> dict[str, Any]:
    """Return what Inductor's configuration is patched with: our partitioner, and our order as the last pass.

    Where the user has passes of their own for the overlap with communication, they run before ours. `peaks` says what
    kernels may need; left out, it is what the plans of the partitioner leave to them. `partitioner` is one that knows
    more than the options; left out, it is one of these. Compilations may be brought to an `end` once kernels are known.
    """
    peaks = FusedPeaks() if peaks is None else peaks
    ends = [] if end is None else [end]
    chosen: dict[str, Any] = {"custom_partitioner_fn": PlannedPartition(options, peaks, partitioner)}
    if "reorder" in options.techniques:
        chosen["reorder_for_peak_memory"] = False  # it would move random draws past one another
        chosen["reorder_for_compute_comm_overlap"] = True
        chosen["reorder_for_compute_comm_overlap_passes"] = [*overlap_passes(), MemoryOrder(options, peaks), *ends]
        chosen["_pre_fusion_custom_pass"] = FusionGuard(options, peaks)
    if options.budget is not None:
        chosen["allow_buffer_reuse"] = False  # storage that waits for a later kernel would count meanwhile
    return chosen


@contextmanager
def inductor(budget: GivenBudget = None, *, allow: Iterable[str] | None = None, **more: Any) -> Generator[None]:
    """Make `torch.compile` with its own backend follow plans for whatever is compiled within.

    Meanwhile, what PyTorch's own `activation_memory_budget` saves is chosen exactly; random draws are always saved.
    Takes the options of the backend "lowtide", without `compiler`. Compilation happens at the first call of a compiled
    function, so that call must be within. Raises UsageError for options that do not exist.
    """
    given = {"budget": budget, "allow": allow, **more, "compiler": "inductor"}
    deciding = {
        "activation_memory_budget_solver": ExactKnapsack(),
        "activation_memory_budget_runtime_estimator": RooflineRuntime(),
    }
    with patched_autograd({**NOT_CACHED, **deciding}), patched_inductor(settings(Options.parse(given))):
        yield
