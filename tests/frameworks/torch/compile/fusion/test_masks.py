"""Under Inductor, on the CPU, what lies in memory of masks is bytes, which its vectors write and read fast."""

import pytest
import torch
from torch import nn
from torch._inductor.utils import run_and_get_code  # pyright: ignore[reportUnknownVariableType]

pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit.script_method:DeprecationWarning")  # Inductor's own


class Masked(nn.Module):
    """Layers whose backward passes need masks: of where they were negative, and of what was dropped."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(64, 64) for _ in range(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the sum of what is left of (rows, 64)."""
        for layer in self.layers:
            x = nn.functional.leaky_relu(layer(x), 0.1)
        return nn.functional.dropout(x, 0.5, self.training).square().sum()


def _compiled(module: nn.Module, budget: str | None) -> nn.Module:
    return torch.compile(module, backend="lowtide", options={"compiler": "inductor", "budget": budget})  # type: ignore[return-value]


@pytest.mark.parametrize("budget", [None, "90%"])
def test_masks_that_are_saved_for_the_backward_pass_are_bytes_in_memory(budget: str | None) -> None:
    torch.manual_seed(0)
    compiled, x = _compiled(Masked(), budget), torch.randn(512, 64)
    _, code = run_and_get_code(lambda: compiled(x).backward())
    assert "uint8_t*" in "".join(code)
    assert "bool*" not in "".join(code)


@pytest.mark.parametrize("budget", [None, "90%"])
def test_gradients_through_masks_are_those_of_eager_pytorch(budget: str | None) -> None:
    torch.manual_seed(0)
    module, x = Masked().eval(), torch.randn(512, 64)
    parameters = list(module.parameters())
    wanted = torch.autograd.grad(module(x), parameters)
    got = torch.autograd.grad(_compiled(module, budget)(x), parameters)
    torch.testing.assert_close(got, wanted, rtol=1e-4, atol=1e-4)
