"""A loop on accelerate within a budget: the losses of the plain run, at a lower peak."""

import pytest
import torch
from torch import nn

from lowtide.frameworks.torch.measure.allocation_events import peak_of_call
from tests.frameworks.torch.integrations.nets import Deep, data

accelerate = pytest.importorskip("accelerate", reason="needs the extra integrations")

pytestmark = pytest.mark.filterwarnings("default")  # others' warnings


def test_a_model_compiled_before_it_is_prepared_trains_within_the_budget() -> None:
    def trained(*, planned: bool) -> tuple[list[torch.Tensor], int]:
        torch.manual_seed(0)
        model = Deep()
        if planned:
            model.compile(backend="lowtide", options={"budget": "50%", "compiler": "eager"})
        accelerator = accelerate.Accelerator(cpu=True)
        model, optimizer, loader = accelerator.prepare(
            model, torch.optim.AdamW(model.parameters()), torch.utils.data.DataLoader(data(), batch_size=512)
        )
        losses: list[torch.Tensor] = []

        def run() -> None:
            for x, y in loader:
                loss = nn.functional.cross_entropy(model(x), y)
                accelerator.backward(loss)
                optimizer.step()
                optimizer.zero_grad()
                losses.append(loss.detach())

        peak, _ = peak_of_call(run, torch.device("cpu"))
        return [*losses, *(parameter.detach() for parameter in model.parameters())], peak

    (expected, peak), (found, lower) = trained(planned=False), trained(planned=True)
    assert all(torch.equal(one, two) for one, two in zip(found, expected, strict=True))
    assert lower < 0.8 * peak
