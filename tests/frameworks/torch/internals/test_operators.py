"""Values stored by `store_in_inductor` have the layout of their operands."""

import pytest
import torch
from torch import Tensor

from lowtide.frameworks.torch.internals.inductor import compile_until_scheduled
from lowtide.frameworks.torch.internals.kernels import KernelNode
from lowtide.frameworks.torch.internals.operators import store_in_inductor
from lowtide.frameworks.torch.rewrites.stored_values import STORED

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


class _LayoutsKnownError(Exception):
    """Ends a compilation once the layouts of its buffers are known."""


def _layouts(function: torch.nn.Module, *inputs: Tensor) -> list[tuple[int, ...]]:
    """Return the strides of all buffers that Inductor allocates for a function."""
    found: list[tuple[int, ...]] = []

    def record(nodes: list[KernelNode]) -> list[KernelNode]:
        made = [buffer for node in nodes for buffer in node.get_outputs()]
        found.extend(tuple(map(int, buffer.node.get_layout().stride)) for buffer in made)
        raise _LayoutsKnownError

    changes = {
        "reorder_for_compute_comm_overlap": True,
        "reorder_for_compute_comm_overlap_passes": [record],
        "fx_graph_cache": False,
    }
    module = torch.fx.symbolic_trace(function)
    with torch.no_grad():
        compile_until_scheduled(module, inputs, changes, lambda: [None])
    return found


class _Gradient(torch.nn.Module):
    """The gradient of ReLU with a stored mask, followed by the sums of batch normalization."""

    def forward(self, rectified: Tensor, gradient: Tensor) -> tuple[Tensor, Tensor]:
        masked = STORED(torch.where(STORED(rectified <= 0), 0.0, gradient))
        return masked.sum([0, 2, 3]), masked * 2


def test_a_stored_mask_and_its_users_have_the_layout_of_the_images() -> None:
    """With a contiguous mask, the gradient would be transposed twice."""
    store_in_inductor(STORED)
    images = [torch.randn(2, 6, 4, 5).to(memory_format=torch.channels_last) for _ in range(2)]
    layouts = [strides for strides in _layouts(_Gradient(), *images) if len(strides) == 4]
    assert layouts
    assert set(layouts) == {images[0].stride()}
