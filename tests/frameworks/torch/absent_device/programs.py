"""Training steps for devices that are not there."""

from typing import Any

import torch
from torch import Tensor, nn

WIDTH, CLASSES, N_BLOCKS, N_ROWS = 128, 512, 2, 2048
MANY_CLASSES, MANY_ROWS = 131_072, 8192


class Blocks(nn.Module):
    """Residual blocks with wide activations, and a head over some classes."""

    def __init__(self) -> None:
        super().__init__()
        parts = (
            nn.Sequential(nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))
            for _ in range(N_BLOCKS)
        )
        self.blocks = nn.ModuleList(parts)
        self.head = nn.Linear(WIDTH, CLASSES)

    def forward(self, value: Tensor, classes: Tensor) -> Tensor:
        for block in self.blocks:
            value = value + block(value)
        return nn.functional.cross_entropy(self.head(value), classes)


class Attention(nn.Module):
    """Layers of attention with dropout on a GPU, whose outputs are most of the memory."""

    def __init__(self) -> None:
        super().__init__()
        self.scales = nn.Parameter(torch.ones(8, dtype=torch.bfloat16, device="cuda"))

    def forward(self, value: Tensor) -> Tensor:
        for scale in self.scales:
            scaled = value * scale
            value = value + nn.functional.scaled_dot_product_attention(scaled, scaled, scaled, dropout_p=0.1)
        return value.square().mean()


def heads() -> Tensor:
    """Return a batch for `Attention`."""
    return torch.randn(4, 8, 1024, 64, dtype=torch.bfloat16, device="cuda")


def batch(device: str = "cpu") -> tuple[Tensor, Tensor]:
    return torch.randn(N_ROWS, WIDTH, device=device), torch.zeros(N_ROWS, dtype=torch.long, device=device)


def on_cuda() -> Any:
    """Return a training step that was written for a GPU, with its batch."""
    from lowtide.torch import TrainingStep

    model = Blocks().cuda()
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    return TrainingStep(model, lambda model, *given: model(*given), optimizer), batch("cuda")


def wide_head() -> Any:
    """Return a layer with many classes and its loss, in bfloat16."""
    from lowtide.torch import TrainingStep

    head = nn.Linear(2048, MANY_CLASSES, bias=False, dtype=torch.bfloat16, device="cuda")
    rows = torch.randn(MANY_ROWS, 2048, dtype=torch.bfloat16, device="cuda")
    classes = torch.zeros(MANY_ROWS, dtype=torch.long, device="cuda")

    def loss(head: nn.Module, rows: Tensor, classes: Tensor) -> Tensor:
        return nn.functional.cross_entropy(head(rows).float(), classes)

    return TrainingStep(head, loss, torch.optim.SGD(head.parameters())), (rows, classes)


def attention() -> Any:
    """Return attention with dropout, and its batch."""
    from lowtide.torch import TrainingStep

    model = Attention()
    return TrainingStep(model, lambda model, value: model(value), torch.optim.SGD(model.parameters())), (heads(),)


def that_needs_values() -> Any:
    """Return a program whose width is read from a tensor, so that it cannot be built on fake tensors."""
    width = int(torch.full((1,), 64).item())
    layer = nn.Linear(width, width)
    return lambda value: layer(value).square().mean(), (torch.ones(8, width),)


def without_a_loss() -> Any:
    return nn.Linear(4, 4), (torch.ones(2, 4),)


def of_another_kind() -> Any:
    return {"not": "a program"}


def that_fails() -> Any:
    raise RuntimeError("out of ideas")
