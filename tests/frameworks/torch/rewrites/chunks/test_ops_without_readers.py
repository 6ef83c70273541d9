"""Ops without readers do not keep a product whole."""

import torch
from torch import nn

import lowtide


class Attention(nn.Module):
    """Attention of two heads, with a mean of its weights over heads that nobody reads."""

    def __init__(self, *, with_mean: bool) -> None:
        super().__init__()
        self.project, self.with_mean = nn.Linear(16, 48), with_mean

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        query, key, value = self.project(rows).view(-1, 3, 2, 8).permute(1, 2, 0, 3)
        weights = torch.bmm(query, key.mT).softmax(-1)
        if self.with_mean:
            weights.mean(0)
        return torch.bmm(weights, value).square().mean()


def test_attention_with_an_unread_mean_of_its_weights_goes_in_chunks() -> None:
    peaks: list[int] = []
    for with_mean in (True, False):
        torch.manual_seed(0)
        model = Attention(with_mean=with_mean)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        step = lowtide.torch.training_step(
            model, Attention.__call__, optimizer, (torch.randn(128, 16),), budget="50%", effort="fast"
        )
        assert not step.result.left_whole
        peaks.append(sum(step.result.peak_bytes.values()))
    assert peaks[0] == peaks[1]
