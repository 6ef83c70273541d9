"""The end of a compilation whose kernels are fused and ordered, before their code is written."""

from collections.abc import Sequence

from lowtide.frameworks.torch.compile.fusion.fused_peaks import FusedPeaks, KernelsKnownError
from lowtide.frameworks.torch.internals.kernels import KernelNode, Strides, input_names, output_strides


class EndScheduled:
    """A pass over kernels, to run last, that ends the compilation while it is told to."""

    def __init__(self, peaks: FusedPeaks, *, ends: bool = False) -> None:
        self._peaks = peaks
        self.ends = ends
        self._strides: Strides | None = None

    def take_strides(self) -> Strides | None:
        """Return, once, how the results of a graph lie whose compilation was ended here."""
        strides, self._strides = self._strides, None
        return strides

    def __deepcopy__(self, memo: object) -> "EndScheduled":
        """Return itself: copies of a configuration are ended in one place."""
        return self

    def __reduce__(self) -> tuple[type[str], tuple[str]]:
        """Pickle as a name: what is compiled to its end is the same without it."""
        return str, (type(self).__name__,)

    def __call__(self, nodes: Sequence[KernelNode]) -> list[KernelNode]:
        """Return the kernels as they are; raises KernelsKnownError where it ends the compilation."""
        if not self.ends:
            return list(nodes)
        self._strides = output_strides()
        self._peaks.expect_again(input_names())
        raise KernelsKnownError
