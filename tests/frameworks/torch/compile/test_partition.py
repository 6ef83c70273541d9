"""What PyTorch's own tests ask of a partitioner, asked of ours: what is saved for the backward pass, in which form."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch._functorch.aot_autograd import aot_function
from torch.fx import GraphModule, Node

from lowtide.frameworks.torch.compile.eager import run_boxed
from lowtide.frameworks.torch.compile.partitioner import Partitioner
from lowtide.frameworks.torch.planning.options import Options

pytestmark = pytest.mark.filterwarnings("ignore:lowtide. .* misses its budget")
Function = Callable[..., Any]


class Parts:
    """A function compiled in two parts, and those parts, when they are known."""

    def __init__(self, function: Function, *, budget: str | None = None, dynamic: bool = False) -> None:
        self.forward: GraphModule
        self.backward: GraphModule
        partition = Partitioner(Options(compiler="eager", budget=budget, effort="fast"))

        def partition_and_look(*args: Any, **keywords: Any) -> tuple[GraphModule, GraphModule]:
            self.forward, self.backward = partition(*args, **keywords)
            return self.forward, self.backward

        self.run = aot_function(
            function, fw_compiler=run_boxed, bw_compiler=run_boxed, partition_fn=partition_and_look, dynamic=dynamic
        )

    def saved(self, n_results: int) -> list[Node]:
        """Return what the forward part returns for the backward part."""
        (output,) = self.forward.graph.find_nodes(op="output")
        return list(output.args[0])[n_results:]


def _gradients(function: Function, inputs: list[torch.Tensor]) -> list[torch.Tensor]:
    given = [value.clone().requires_grad_() for value in inputs]
    results = [value for value in torch.utils._pytree.tree_leaves(function(*given)) if isinstance(value, torch.Tensor)]
    return [*results, *torch.autograd.grad([r.sin().sum() for r in results if r.requires_grad], given)]


def _check_values(function: Function, parts: Parts, inputs: list[torch.Tensor]) -> None:
    for planned, eager in zip(_gradients(parts.run, inputs), _gradients(function, inputs), strict=True):
        assert torch.equal(planned, eager)


def _is_number(node: Node) -> bool:
    return isinstance(node.meta["val"], torch.SymInt)


@pytest.mark.parametrize("budget", [None, "70%"])
def test_a_sum_saves_sizes_and_not_its_input(budget: str | None) -> None:
    """The backward pass of a sum needs only the shape, so no tensor is saved."""
    parts = Parts(lambda value: value.sum(dim=1), budget=budget, dynamic=True)
    _check_values(lambda value: value.sum(dim=1), parts, [torch.ones(10, 12)])
    assert parts.saved(1)
    assert all(_is_number(node) for node in parts.saved(1))


@pytest.mark.parametrize("budget", [None, "70%"])
def test_elements_are_saved_and_not_the_tuple(budget: str | None) -> None:
    """Of layer normalization's three results, tensors cross; the input and both statistics do."""

    def function(value: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        return nn.functional.layer_norm(value, [10], weight, bias)

    parts = Parts(function, budget=budget)
    _check_values(function, parts, [torch.randn(3, 10), torch.ones(10), torch.zeros(10)])
    assert all(isinstance(node.meta["val"], torch.Tensor) for node in parts.saved(1))
    assert len(parts.backward.graph.find_nodes(op="placeholder")) == len(parts.saved(1)) + 1


@pytest.mark.parametrize("budget", [None, "70%"])
def test_sizes_among_the_results_and_saved_ones_stay_apart(budget: str | None) -> None:
    """Results that are sizes stand where the program returns them; saved tensors come before saved sizes."""

    def function(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor, d: torch.Tensor) -> tuple[Any, ...]:
        joined = torch.cat([a.expand(b.size(0) + c.size(0), a.size(0)), b, c])
        product = torch.mm(joined, d)
        return joined, b.size(), c * 1, torch.mm(product, a.view(product.size(1), a.size(0)))

    parts = Parts(function, budget=budget, dynamic=True)
    _check_values(function, parts, [torch.randn(10), torch.randn(3, 10), torch.randn(2, 10), torch.randn(10, 1)])
    numbers = [_is_number(node) for node in parts.saved(5)]
    assert numbers == sorted(numbers)
    assert [_is_number(node) for node in parts.forward.graph.find_nodes(op="output")[0].args[0][:5]] == [
        False,
        True,
        True,
        False,
        False,
    ]


def _chain(value: torch.Tensor) -> torch.Tensor:
    for _ in range(8):
        value = torch.sin(value)
    return value


def test_of_a_chain_no_more_is_saved_than_pytorch_does() -> None:
    """Eight sines could save eight inputs; PyTorch saves one and runs the rest again, and no bit changes."""
    whole, tight = Parts(_chain), Parts(_chain, budget="60%")
    for parts in (whole, tight):
        _check_values(_chain, parts, [torch.randn(64, 64)])
        assert len(parts.saved(1)) == 1
    repeated = tight.backward.graph.find_nodes(op="call_function", target=torch.ops.aten.sin.default)
    assert repeated


@pytest.mark.parametrize("budget", [None, "60%"])
def test_nothing_is_saved_that_the_backward_pass_does_not_use(budget: str | None) -> None:
    """Every saved value is read, and none is saved twice."""

    def function(value: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        hidden = torch.tanh(value @ weight)
        top, index = hidden.topk(4, dim=1)
        return (top.exp() @ torch.ones(4, 8)).softmax(1) + index.sum() + hidden.detach().mean()

    parts = Parts(function, budget=budget)
    _check_values(function, parts, [torch.randn(32, 16), torch.randn(16, 16)])
    saved = parts.saved(1)
    assert len(set(saved)) == len(saved)
    inputs = parts.backward.graph.find_nodes(op="placeholder")
    assert all(node.users for node in inputs)
