"""Modules under `torch.utils.checkpoint` train with eager's gradients, with dropout and with attention without it."""

import copy

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


class Layer(nn.Module):
    """Attention, which is an op tagged as random even if its dropout is 0, and dropout."""

    def __init__(self, dropout: float) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(16, 2, dropout=dropout, batch_first=True)
        self.mix = nn.Sequential(nn.Linear(16, 16), nn.ReLU(), nn.Dropout(dropout))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.mix(self.attention(inputs, inputs, inputs, need_weights=False)[0])


class Checkpointed(nn.Module):
    """Checkpointed layers."""

    def __init__(self, dropout: float) -> None:
        super().__init__()
        self.layers = nn.ModuleList([Layer(dropout)])

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            inputs = inputs + checkpoint(layer, inputs, use_reentrant=False)
        return inputs.pow(2).mean()


def _gradients(run: nn.Module, model: nn.Module, inputs: torch.Tensor) -> list[torch.Tensor]:
    torch.manual_seed(3)
    run(inputs).backward()
    return [parameter.grad for parameter in model.parameters() if parameter.grad is not None]


@pytest.mark.share_of_cases
@pytest.mark.parametrize("dropout", [0.0, 0.2])
@pytest.mark.parametrize(("compiler", "allow"), [("eager", None), ("inductor", None), ("inductor", ["reorder"])])
@pytest.mark.filterwarnings("ignore:lowtide")
@pytest.mark.filterwarnings("ignore:.*torch.jit.script_method:DeprecationWarning")
@pytest.mark.usefixtures("quick_inductor")
def test_gradients_are_those_of_eager(compiler: str, allow: list[str] | None, dropout: float) -> None:
    torch.manual_seed(0)
    model = Checkpointed(dropout)
    inputs = torch.randn(8, 32, 16)
    torch.compiler.reset()
    options = {"compiler": compiler, "budget": "80%", "allow": allow}
    compiled_model = copy.deepcopy(model)
    with torch._inductor.config.patch(fallback_random=True):
        found = _gradients(torch.compile(compiled_model, backend="lowtide", options=options), compiled_model, inputs)
    torch.testing.assert_close(found, _gradients(model, model, inputs))
