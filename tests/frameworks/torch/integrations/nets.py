"""The small model that loops of others train: with dropout, and activations that outweigh its parameters."""

import torch
from torch import nn


class Deep(nn.Module):
    """Layers in a class of its own."""

    def __init__(self) -> None:
        super().__init__()
        layers = [layer for _ in range(6) for layer in (nn.Linear(64, 64), nn.Tanh(), nn.Dropout(0.1))]
        self.layers = nn.Sequential(*layers, nn.Linear(64, 4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x)


def data() -> torch.utils.data.TensorDataset:
    """Return three batches of 512 rows."""
    return torch.utils.data.TensorDataset(torch.randn(1536, 64), torch.randint(0, 4, (1536,)))
