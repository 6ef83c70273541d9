"""What Inductor needs for a program without lowtide: its own partition, fused and ordered, no code written."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from torch.fx import GraphModule

from lowtide.frameworks.torch.compile.fusion.cpu_functions import CpuFunctions
from lowtide.frameworks.torch.compile.fusion.end_scheduled import EndScheduled
from lowtide.frameworks.torch.compile.fusion.fused_peaks import FusedPeaks
from lowtide.frameworks.torch.compile.fusion.partition import PlannedPartition
from lowtide.frameworks.torch.compile.options import Options
from lowtide.frameworks.torch.compile.programs import put_back, remembered
from lowtide.frameworks.torch.internals.aot_autograd import patched_autograd
from lowtide.frameworks.torch.internals.dynamo import copied
from lowtide.frameworks.torch.internals.inductor import compile_until_scheduled, overlap_passes
from lowtide.frameworks.torch.internals.kernels import KernelNode, input_names

BOTH_PASSES = {"force_non_lazy_backward_lowering": True}
"""The backward pass is compiled with the forward pass, not at its first call: so what both need is known."""


@dataclass(frozen=True, slots=True)
class OwnNeed:
    """What a program needs without lowtide, in bytes on the first device."""

    peak: int
    """Without what outlives the program."""
    persistent: int


def own_need(module: GraphModule, example_inputs: Sequence[Any], options: Options) -> OwnNeed | None:
    """Return what Inductor alone needs for a captured graph; None where both passes are not known ahead of their run.

    The graph is lowered, fused and ordered as without lowtide; that is not remembered.
    """
    peaks = FusedPeaks()
    end = EndScheduled(peaks, ends=True)
    as_it_is = replace(options, budget=None, allow=(), plans=None)
    changes: dict[str, Any] = {
        "custom_partitioner_fn": PlannedPartition(as_it_is, peaks),
        "reorder_for_compute_comm_overlap": True,
        "reorder_for_compute_comm_overlap_passes": [*overlap_passes(), _Seen(peaks), end],
        "fx_graph_cache": False,
    }
    before = remembered()
    try:
        with patched_autograd({"enable_autograd_cache": False, **BOTH_PASSES}):
            compile_until_scheduled(copied(module), example_inputs, changes, end.take_strides)
    finally:
        put_back(before)
    if len(peaks.planned) != 1 or len(peaks.planned[0].kernel_peaks) != 2:
        return None
    (planned,) = peaks.planned
    space = planned.graph.spaces[0].name
    return OwnNeed(max(planned.kernel_peaks), planned.graph.persistent_bytes()[space])


class _Seen:
    """A pass over kernels, to run after all that move them, that notes what they need."""

    def __init__(self, peaks: FusedPeaks) -> None:
        self._peaks = peaks

    def __deepcopy__(self, memo: object) -> "_Seen":
        """Return itself: copies of a configuration note what they see in one place."""
        return self

    def __reduce__(self) -> tuple[type[str], tuple[str]]:
        """Pickle as a name; nothing that is compiled with it is kept."""
        return str, (type(self).__name__,)

    def __call__(self, nodes: Sequence[KernelNode]) -> list[KernelNode]:
        """Return the kernels as they are."""
        if nodes:
            given = self._peaks.given(input_names())
            self._peaks.note_outputs(input_names())
            self._peaks.check(input_names(), CpuFunctions.of(nodes, None, given).peak_bytes)
        return list(nodes)
