"""Windows only compute sums of tensors that depend on one product element by element."""

import torch
from torch import nn

from lowtide.frameworks.torch.planning.programs import forget_programs


class Residual(nn.Sequential):
    """Layers with a residual connection."""

    def forward(self, value: torch.Tensor) -> torch.Tensor:
        return value + super().forward(value)


def test_sums_after_another_product_are_not_computed_by_windows() -> None:
    """A chain of layers, with one region of products in its backward pass, trained within a budget with equal bits."""
    torch.manual_seed(0)
    layers = [nn.Sequential(nn.Linear(256, 1024), nn.GELU(), nn.Linear(1024, 256)) for _ in range(3)]
    batch = torch.randn(512, 256)
    for model in (nn.Sequential(*layers), nn.Sequential(*map(Residual, layers))):
        gradients: list[list[torch.Tensor | None]] = []
        for options in (None, {"compiler": "eager", "budget": "60%"}):
            torch._dynamo.reset()  # pyright: ignore[reportPrivateUsage]
            forget_programs()
            model.zero_grad()
            run = model if options is None else torch.compile(model, backend="lowtide", options=options)
            run(batch).square().mean().backward()
            gradients.append([parameter.grad for parameter in model.parameters()])
        for eager, planned in zip(*gradients, strict=True):
            assert eager is not None
            assert planned is not None
            assert torch.equal(eager, planned)
