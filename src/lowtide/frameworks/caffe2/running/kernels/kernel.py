"""What a kernel is."""

from collections.abc import Callable, Sequence
from typing import Any

from numpy.typing import NDArray

from lowtide.frameworks.caffe2.nets.arguments import Arguments

Array = NDArray[Any]
Kernel = Callable[[Sequence[Array], Arguments, int], Sequence[Array]]
"""From the inputs, the settings and the number of outputs to the outputs, which are arrays of their own."""
