"""The budget that a program's result names is the user's, whatever was planned for to meet it."""

import pytest
import torch
from torch import nn

from lowtide.frameworks.torch.planning.programs import forget_programs, planned_programs

pytestmark = [
    pytest.mark.usefixtures("quick_inductor"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::ResourceWarning"),
]


def test_what_is_allowed_is_said_beside_the_peak_of_the_kernels() -> None:
    """A graph that fits as Inductor does it alone is planned for no budget at all."""
    forget_programs()
    module, batch = nn.Sequential(nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 1)), torch.randn(64, 16)
    torch.compile(module, backend="lowtide", options={"budget": "100%"})(batch).sum().backward()
    (program,) = planned_programs()
    assert program.own_peak_bytes is not None
    assert program.result.budget.allowed == {"cpu": program.own_peak_bytes}
    assert program.predicted_peak_bytes == {"cpu": max(program.kernel_peaks)}
