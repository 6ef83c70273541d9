"""Under Inductor, on the CPU, what lies in memory of masks is bytes, which its vectors write and read fast."""

import torch
from torch import nn
from torch._inductor.utils import run_and_get_code

from lowtide.torch import measure


class Masked(nn.Module):
    """Layers whose backward passes need masks: of where they were negative, and of what was dropped."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(64, 64) for _ in range(6))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the sum of what is left of (rows, 64)."""
        for layer in self.layers:
            x = torch.where(layer(x) > 0, layer(x), 0.1 * x)
        return nn.functional.dropout(x, 0.5).square().sum()


def _code_of(budget: str | None) -> str:
    torch.manual_seed(0)
    module, x = Masked(), torch.randn(512, 64)
    compiled = torch.compile(module, backend="lowtide", options={"budget": budget})

    def step() -> None:
        compiled(x).backward()

    _, code = run_and_get_code(step)
    return "\n".join(code)


def test_masks_that_are_saved_for_the_backward_pass_are_bytes_in_memory() -> None:
    for budget in (None, "60%"):
        code = _code_of(budget)
        assert "unsigned char*" in code or "uint8_t*" in code
        assert "bool*" not in code


def test_gradients_of_what_was_masked_are_those_of_eager_pytorch() -> None:
    torch.manual_seed(0)
    module, x = Masked().eval(), torch.randn(512, 64)
    module(x).backward()
    wanted = [parameter.grad.clone() for parameter in module.parameters() if parameter.grad is not None]
    module.zero_grad(set_to_none=True)
    compiled = torch.compile(module, backend="lowtide", options={"budget": "60%"})
    measured = measure(lambda given: compiled(given).backward(), x, state=[module], timed_calls=1)
    assert measured.predicted_peak_bytes is not None
    module.zero_grad(set_to_none=True)
    compiled(x).backward()
    got = [parameter.grad for parameter in module.parameters() if parameter.grad is not None]
    for one, other in zip(got, wanted, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)
