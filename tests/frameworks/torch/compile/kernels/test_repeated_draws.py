"""Random draws of PyTorch's own kernels, recomputed from a saved random state."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._inductor import config

from lowtide.frameworks.torch.internals import pytree
from lowtide.frameworks.torch.planning.programs import forget_programs, planned_programs
from lowtide.frameworks.torch.reading.repeatable_draws import repeatable_op
from tests.frameworks.torch.recomputed import recomputed_kinds

pytestmark = pytest.mark.filterwarnings(
    "ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::ResourceWarning"
)
"""The warnings are Inductor's own; lowtide's still end a test."""

aten = torch.ops.aten


@pytest.mark.parametrize(
    ("overload", "more"),
    [
        (aten.poisson.default, ()),
        (aten.native_dropout.default, (0.3, True)),
        (aten.rand_like.default, ()),
        (aten.bernoulli.p, (0.5,)),
    ],
)
def test_a_repeated_draw_has_the_results_of_the_first_and_keeps_the_random_state(
    overload: Any, more: tuple[Any, ...]
) -> None:
    values = torch.rand(50) + 1
    torch.manual_seed(0)
    expected = pytree.tensors_in(overload(values, *more))
    after = torch.get_rng_state()
    torch.manual_seed(0)
    state, *first = repeatable_op(overload)(values, *more)
    assert all(map(torch.equal, first, expected))
    assert torch.equal(torch.get_rng_state(), after)
    torch.rand(3)
    before = torch.get_rng_state()
    _, *second = repeatable_op(overload)(values, *more, random_state=state)
    assert all(map(torch.equal, second, expected))
    assert torch.equal(torch.get_rng_state(), before)


class Noisy(nn.Module):
    """A block with a draw by a kernel of PyTorch, whose result its backward pass needs."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(width, width), nn.Linear(width, width)

    def forward(self, value: Tensor) -> Tensor:
        rates = nn.functional.softplus(self.first(value))
        return value + nn.functional.dropout(self.second(torch.poisson(rates) * rates), 0.1)


@pytest.mark.usefixtures("quick_inductor")
@pytest.mark.parametrize("fallback_random", [False, True])
def test_gradients_are_those_of_the_first_draws(fallback_random: bool) -> None:
    """With `fallback_random`, Inductor orders all draws, and dropout is a draw by a kernel of PyTorch, too."""

    def gradients(**options: Any) -> list[Tensor]:
        torch.manual_seed(0)
        module, batch = nn.Sequential(*(Noisy(64) for _ in range(4))), torch.randn(512, 64)
        torch.compiler.reset()
        forget_programs()
        run: Any = torch.compile(module, **options)
        torch.manual_seed(1)
        run(batch).square().mean().backward()
        return [parameter.grad for parameter in module.parameters() if parameter.grad is not None]

    with config.patch(fallback_random=fallback_random):
        expected = gradients(backend="inductor")
        found = gradients(backend="lowtide", options={"budget": "50%"})
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-5)
    (program,) = planned_programs()
    assert program.result.shortfall is None
    assert "aten.poisson" in recomputed_kinds(program.result)
