"""`ForwardLast` generates no code if the kernels of the backward pass end the compilation."""

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch._inductor import metrics
from torch._inductor.virtualized import V
from torch.fx import GraphModule

from lowtide.frameworks.torch.compile.fusion.settings import BOTH_PASSES
from lowtide.frameworks.torch.internals.aot_autograd import patched_autograd
from lowtide.frameworks.torch.internals.inductor import compile_fx
from lowtide.frameworks.torch.internals.kernels import KernelNode, output_strides

pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit.script_method:DeprecationWarning")  # Inductor's own


class Last:
    """A scheduler pass that can end the compilation of either pass."""

    def __init__(self, *, ends_backward: bool = False) -> None:
        self.ends = False
        self.ends_backward = ends_backward
        self.passes: list[tuple[str, int]] = []
        """The scheduled passes, each with the number of kernels generated before."""
        self.strides: Any = None

    def __deepcopy__(self, memo: object) -> "Last":
        return self

    def take_strides(self) -> Any:
        strides, self.strides = self.strides, None
        return strides

    def __call__(self, nodes: Sequence[KernelNode]) -> list[KernelNode]:
        self.passes.append(("backward" if V.graph.is_backward else "forward", metrics.generated_kernel_count))
        if V.graph.is_backward and self.ends_backward:
            raise RuntimeError("the kernels of the backward pass are too large")
        if self.ends:
            self.strides = output_strides()
            raise RuntimeError("the kernels of the forward pass are known")
        return list(nodes)


def compiled(last: Last) -> Any:
    """Return a function compiled with its forward pass last."""

    def backend(module: GraphModule, inputs: Sequence[Any]) -> Any:
        changes = {
            "reorder_for_compute_comm_overlap": True,
            "reorder_for_compute_comm_overlap_passes": [last],
            "fx_graph_cache": False,
        }
        with patched_autograd({"enable_autograd_cache": False, **BOTH_PASSES}):
            return compile_fx(module, inputs, changes, last)

    torch._dynamo.reset()  # pyright: ignore[reportPrivateUsage]
    metrics.reset()
    return torch.compile(scaled, backend=backend)


def scaled(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """Return a loss with a gradient that needs saved tensors."""
    return (torch.tanh(x @ w) * x.exp()).sum()


def operands() -> tuple[torch.Tensor, torch.Tensor]:
    """Return two random matrices."""
    torch.manual_seed(0)
    return torch.randn(8, 8, requires_grad=True), torch.randn(8, 8, requires_grad=True)


def test_compiled_gradients_equal_eager_ones() -> None:
    last, given, wanted = Last(), operands(), operands()
    compiled(last)(*given).backward()
    scaled(*wanted).backward()
    assert [name for name, _ in last.passes] == ["forward", "backward", "forward"]
    for one, other in zip(given, wanted, strict=True):
        torch.testing.assert_close(one.grad, other.grad)


def test_no_code_is_generated_if_the_backward_pass_ends_the_compilation() -> None:
    last = Last(ends_backward=True)
    with pytest.raises(RuntimeError, match="backward pass are too large"):
        compiled(last)(*operands())
    assert last.passes == [("forward", 0), ("backward", 0)]
    assert metrics.generated_kernel_count == 0
