"""Modules under `torch.utils.checkpoint` train with eager's gradients, with dropout and with attention without it."""

import copy
import functools
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts


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


def _save_products(_context: Any, op: Any, *_args: Any, **_kwargs: Any) -> CheckpointPolicy:
    return CheckpointPolicy.MUST_SAVE if "addmm" in str(op) else CheckpointPolicy.PREFER_RECOMPUTE


@pytest.mark.parametrize("is_selective", [True, False])
@pytest.mark.parametrize("budget", [None, "90%"])
def test_a_checkpoint_around_a_compiled_function_recomputes_in_its_backward_pass(
    budget: str | None, is_selective: bool
) -> None:
    torch.manual_seed(0)
    torch.compiler.reset()
    layer, given = nn.Linear(16, 16), torch.randn(8, 16)
    calls: list[bool] = []

    def run(rows: torch.Tensor) -> torch.Tensor:
        calls.append(torch.is_grad_enabled())
        return compiled(rows)

    def gradient(function: Any, **settings: Any) -> torch.Tensor:
        rows = given.clone().requires_grad_()
        found = checkpoint(function, rows, use_reentrant=False, **settings).sum()
        assert len(calls) == (function is run)
        found.backward()
        assert rows.grad is not None
        return rows.grad

    compiled = torch.compile(
        lambda rows: torch.tanh(layer(rows)), backend="lowtide", options={"compiler": "eager", "budget": budget}
    )
    plain = gradient(lambda rows: torch.tanh(layer(rows)))
    contexts = functools.partial(create_selective_checkpoint_contexts, _save_products)
    assert torch.equal(gradient(run, **({"context_fn": contexts} if is_selective else {})), plain)
