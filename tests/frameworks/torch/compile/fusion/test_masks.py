"""Under Inductor, on the CPU, masks that are saved for the backward pass are bytes in memory."""

import pytest
import torch
from torch import nn
from torch._inductor.utils import run_and_get_code  # pyright: ignore[reportUnknownVariableType]

pytestmark = [
    pytest.mark.usefixtures("quick_inductor"),
    pytest.mark.filterwarnings("ignore:.*torch.jit.script_method:DeprecationWarning"),  # Inductor's own
    pytest.mark.filterwarnings("ignore:lowtide"),  # a missed budget changes nothing here
]


class Masked(nn.Module):
    """Layers whose backward passes need masks: of negative elements, and of dropped ones."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(64, 64) for _ in range(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the sum of the squares of the kept elements of (rows, 64)."""
        for layer in self.layers:
            x = nn.functional.leaky_relu(layer(x), 0.1)
        return (x * (x.cos() > 0.9)).square().sum()


@pytest.mark.parametrize("budget", [None, "90%"])
def test_saved_masks_are_bytes_in_memory_with_the_gradients_of_eager_pytorch(budget: str | None) -> None:
    torch.manual_seed(0)
    module, x = Masked(), torch.randn(512, 64)
    parameters = list(module.parameters())
    wanted = torch.autograd.grad(module(x), parameters)
    compiled = torch.compile(module, backend="lowtide", options={"compiler": "inductor", "budget": budget})
    found, code = run_and_get_code(lambda: torch.autograd.grad(compiled(x), parameters))
    assert "uint8_t*" in "".join(code)
    assert "bool*" not in "".join(code)
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-4)
