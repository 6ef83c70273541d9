"""What Inductor's kernels are said to need is what they allocate."""

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from lowtide.frameworks.torch.planning.programs import forget_programs
from lowtide.torch import measure

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore:Dynamo detected")


class Messages(nn.Module):
    """Messages along edges: rows gathered from both ends lie side by side, and sums of them are normed."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            nn.ModuleList([nn.Linear(2 * width, width), nn.Linear(width, width), nn.LayerNorm(width)]) for _ in range(2)
        )

    def forward(self, nodes: Tensor, edges: Tensor) -> Tensor:
        source, target = edges
        for message, update, norm in self.layers:  # type: ignore[misc]
            sent = functional.gelu(message(torch.cat([nodes[source], nodes[target]], -1)))
            nodes = nodes + functional.gelu(update(norm(torch.zeros_like(nodes).index_add(0, target, sent))))
        return nodes.square().mean()


@pytest.mark.usefixtures("quick_inductor")
def test_parts_of_a_concatenation_and_operands_that_others_read_are_counted_as_they_lie() -> None:
    """The first part allocates the whole; a kernel's part writes over nothing that another part reads."""
    torch.manual_seed(0)
    forget_programs()
    model = Messages(32)
    batch = torch.randn(64, 32), torch.randint(0, 64, (2, 512))
    step = torch.compile(model, backend="lowtide", options={"budget": "70%"}, dynamic=False)
    step(*batch).backward()
    model.zero_grad(set_to_none=True)
    found = measure(lambda *given: step(*given).backward(), *batch, state=[model], timed_calls=1)
    assert found.measured_peak_bytes == pytest.approx(found.predicted_peak_bytes, rel=0.01)


class Doubling(nn.Module):
    """Running sums by steps that double: concatenations one after the other, with nothing of PyTorch's own between."""

    def forward(self, value: Tensor) -> Tensor:
        for step in (1, 2, 4, 8, 16):
            value = torch.cat([value[:step], value[step:] + value[:-step].sin()]).cos()
        return value.sum()


@pytest.mark.usefixtures("quick_inductor")
def test_a_function_ends_where_it_is_full_behind_a_concatenation_too() -> None:
    """Its kernel has no code, and Inductor looks whether to end a function behind kernels with code only."""
    forget_programs()
    value = torch.randn(32, 1024, requires_grad=True)
    step = torch.compile(Doubling(), backend="lowtide", options={"budget": "60%"}, dynamic=False)
    step(value).backward()
    value.grad = None
    found = measure(lambda given: step(given).backward(), value, timed_calls=1)
    assert found.measured_peak_bytes == pytest.approx(found.predicted_peak_bytes, rel=0.01)
