"""What the forward pass saves as views of one buffer is there once while the backward pass runs."""

import pytest
import torch
from torch import nn

import lowtide.torch as lt
from lowtide.frameworks.torch.planning.programs import forget_programs

pytestmark = [
    pytest.mark.usefixtures("quick_inductor"),
    pytest.mark.filterwarnings("ignore:.*torch.jit.script_method:DeprecationWarning"),  # Inductor's own
]
WIDTH = 64


class Attention(nn.Module):
    """Layers of attention whose queries, keys and values come from one product."""

    def __init__(self) -> None:
        super().__init__()
        self.projections = nn.ModuleList(nn.Linear(WIDTH, 3 * WIDTH) for _ in range(3))

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        """Return the mean of the squares of what the layers make."""
        for projection in self.projections:
            parts = projection(rows).unflatten(-1, (3, 2, WIDTH // 2)).transpose(1, 3)
            query, key, value = (part.squeeze(2) for part in parts.split(1, 2))
            rows = rows + nn.functional.scaled_dot_product_attention(query, key, value).transpose(1, 2).flatten(2)
        return rows.pow(2).mean()


def test_the_peak_counts_it_once() -> None:
    forget_programs()
    torch.manual_seed(1)
    model, rows = Attention(), torch.randn(4, 128, WIDTH)
    compiled = torch.compile(model, backend="lowtide", options={"compiler": "inductor", "budget": "100%"})
    measured = lt.measure(lambda batch: compiled(batch).backward(), rows, state=[model], timed_calls=1)
    predicted = measured.predicted_peak_bytes
    assert predicted is not None
    assert 0.98 * predicted <= measured.measured_peak_bytes <= predicted  # scratch of attention is an upper bound
