"""Programs at the edges of what `torch.compile` takes, through Inductor: the same values as without it."""

import logging
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
import torch
from torch._inductor import config
from torch.utils import _pytree as pytree
from torch.utils.checkpoint import checkpoint

from tests.frameworks.torch.compile.edge_autograd import AUTOGRAD
from tests.frameworks.torch.compile.edge_inputs import INPUTS
from tests.frameworks.torch.compile.edge_programs import BIT_EQUAL, WIDTH, WITHOUT_BUDGET, Layers, parameter

pytestmark = [
    pytest.mark.usefixtures("quick_inductor"),
    pytest.mark.filterwarnings("ignore:lowtide. .* more than (its|their) budget"),  # floors are high
    pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf"),  # TorchDynamo looks at it
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore:Torchinductor does not support code generation for complex"),
]
PROGRAMS = BIT_EQUAL | AUTOGRAD | INPUTS
SLOW = ("dynamic_views", "dynamic_sizes", "compiled_autograd", "graph_break")
"""Compiled for long. Other tests compile dynamic sizes and several graphs; compiled autograd is tried op by op."""
BEFORE_LOWERING = ("full_backward_hooks", "gradients_within_the_program", "spectral_norm", "subclass_parameters")
"""What is special of these is gone when Inductor gets their graphs; they are tried op by op."""


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    """What Inductor draws are PyTorch's own random numbers."""
    logging.getLogger("torch._logging").setLevel(logging.ERROR)
    with config.patch(fallback_random=True):
        yield


def _values(name: str, **options: Any) -> list[Any]:
    def compile_it(program: Any, **keywords: Any) -> Any:
        return torch.compile(program, backend="lowtide", options=options, **keywords) if options else program

    torch.manual_seed(5)
    return pytree.tree_leaves(PROGRAMS[name](compile_it))


def test_a_backward_hook_in_a_checkpointed_region_is_left_to_pytorch() -> None:
    """The backward pass is then given the hook, which no plan knows; values are those of eager."""
    layers = Layers(2)

    def hook(_module: object, _given: object, result: torch.Tensor) -> torch.Tensor:
        result.register_hook(lambda gradient: gradient * 2)
        return result

    layers.register_forward_hook(hook)
    value = parameter(64, WIDTH)

    def function(value: torch.Tensor) -> torch.Tensor:
        return checkpoint(layers, value, use_reentrant=False).sin().sum()

    (expected,) = torch.autograd.grad(function(value), value)
    compile_it = partial(torch.compile, backend="lowtide", options={"budget": "60%"})
    with torch._dynamo.compiled_autograd._enable(compile_it), pytest.warns(UserWarning, match="inputs of its own"):
        compile_it(function)(value).backward()
    torch.testing.assert_close(value.grad, expected)


@pytest.mark.share_of_cases(0.5)  # one compilation takes seconds; all run op by op in test_edges
@pytest.mark.parametrize(
    ("name", "budget"),
    [
        *((name, "60%") for name in PROGRAMS if name not in SLOW + BEFORE_LOWERING),
        *((name, None) for name in WITHOUT_BUDGET),
    ],
)
def test_values_are_those_of_eager_to_rounding(name: str, budget: str | None) -> None:
    """Results, gradients, buffers and overwritten inputs do not depend on the plan; no graph is left to PyTorch."""
    for planned, eager in zip(_values(name, budget=budget), _values(name), strict=True):
        if isinstance(eager, torch.Tensor) and eager.numel():
            largest = (
                float(torch.view_as_real(eager).abs().max())
                if eager.is_complex()
                else float(eager.double().abs().max())
            )
            torch.testing.assert_close(planned, eager, rtol=1e-4, atol=1e-5 * max(largest, 1))
        else:
            assert type(planned) is type(eager)
            assert isinstance(eager, torch.Tensor) or planned == eager
