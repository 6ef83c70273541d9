"""What the forward pass gives away besides the loss."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from lowtide.frameworks.torch.planning.programs import forget_programs, planned_programs


class WithLogits(nn.Module):
    """A model that returns its loss and its logits, as a view of what computed them."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 64), nn.GELU(), nn.Linear(64, 512))

    def forward(self, inputs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return loss and logits."""
        logits = self.layers(inputs).unflatten(0, (4, -1))
        return logits.log_softmax(-1).sin().mean(), logits


@pytest.mark.filterwarnings("ignore:lowtide. .* misses its budget")  # whatever the budget, the results are the same
@pytest.mark.parametrize("budget", ["75%", "65%"])
def test_outputs_of_the_forward_pass_are_made_once(budget: str, digest: Callable[[Any], str]) -> None:
    """The caller has them before the backward pass begins, so a plan may not let them go and make them again."""
    torch._dynamo.reset()
    forget_programs()
    torch.manual_seed(0)
    model = WithLogits()
    batch = torch.randn(128, 32)

    def run(call: Callable[..., Any]) -> str:
        model.zero_grad()
        loss, logits = call(batch)
        kept = logits.clone()
        (loss + logits.mean()).backward()
        return digest([loss, logits, kept, [parameter.grad for parameter in model.parameters()]])

    options = {"compiler": "eager", "budget": budget}
    assert run(torch.compile(model, backend="lowtide", options=options)) == run(model)
    (program,) = planned_programs()
    logits_op = program.graph.op_names.index("addmm_2")
    assert program.result.plan.order().tolist().count(logits_op) == 1
