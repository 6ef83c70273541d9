"""The partitioner in the form that Inductor's configuration takes."""

from collections.abc import Sequence
from typing import Any

from torch.fx import GraphModule

from lowtide.frameworks.torch.compile.fusion.fused_peaks import FusedPeaks
from lowtide.frameworks.torch.compile.identity import identity
from lowtide.frameworks.torch.compile.options import Options
from lowtide.frameworks.torch.compile.partitioner import Partitioner
from lowtide.frameworks.torch.compile.programs import programs_planned
from lowtide.frameworks.torch.internals.inductor import CustomPartitionerFn


class PlannedPartition(CustomPartitionerFn):
    """Inductor's `custom_partitioner_fn`: every joint graph is split as its plan says."""

    def __init__(self, options: Options, peaks: FusedPeaks, partitioner: Partitioner | None = None) -> None:
        self._options = options
        self._partition = partitioner or Partitioner(options)
        self._peaks = peaks

    def __call__(
        self, gm: GraphModule, joint_inputs: Sequence[object], **kwargs: Any
    ) -> tuple[GraphModule, GraphModule]:
        """Return the forward and the backward graph; see `Partitioner`."""
        with programs_planned() as planned:
            forward, backward = self._partition(gm, joint_inputs, **kwargs)
        if planned:
            self._peaks.expect(planned[-1], forward, backward)
        return forward, backward

    def uuid(self) -> str:
        """Return what tells compiled programs apart in Inductor's caches."""
        return f"{identity(self._options)} {self._peaks.identity}"
