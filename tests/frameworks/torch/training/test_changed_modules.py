"""A planned step follows modules that change while it trains: parametrizations, hooks, norms, buffers and lists."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations, parametrize, prune

import lowtide.torch
from lowtide.errors import UnsupportedError
from tests.frameworks.torch.training.test_python_state import compare

pytestmark = pytest.mark.filterwarnings("ignore:lowtide. .* changed")
WIDTH = 6


class Half(nn.Module):
    """A parametrization with a plain number."""

    def __init__(self) -> None:
        super().__init__()
        self.factor = 0.5

    def forward(self, weight: torch.Tensor) -> torch.Tensor:
        return weight * self.factor


class Block(nn.Module):
    """A residual layer with a norm."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.norm = nn.Linear(WIDTH, WIDTH), nn.BatchNorm1d(WIDTH)
        self.activation: Callable[[torch.Tensor], torch.Tensor] = torch.relu

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        return rows + self.activation(self.norm(self.layer(rows)))


class Stack(nn.Module):
    """A list of blocks, with a buffer and a parametrized layer."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(3))
        self.last = nn.Linear(WIDTH, 3)
        parametrize.register_parametrization(self.last, "weight", Half())
        self.handles: list[Any] = []
        self.register_buffer("mask", torch.ones(WIDTH))

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            rows = block(rows)
        return self.last((rows * self.mask).float())


class Spectral(Stack):
    """A stack with a weight divided by its norm, which is estimated anew in each call."""

    def __init__(self) -> None:
        super().__init__()
        first: Any = self.blocks[0]
        parametrizations.spectral_norm(first.layer)


class Siamese(Stack):
    """A stack with one block in three places: twice in the list, and under a name of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.shared = self.blocks[0]
        self.blocks.append(self.shared)


def freeze_a_block(number: int, model: Any) -> None:
    model.blocks[1].requires_grad_(not 5 <= number < 12)


def change_the_number_of_a_parametrization(number: int, model: Any) -> None:
    model.last.parametrizations["weight"][0].factor = 2.0 if number >= 10 else 0.5


def remove_a_parametrization(number: int, model: Any) -> None:
    if number == 10:
        parametrize.remove_parametrizations(model.last, "weight")


def add_a_parametrization(number: int, model: Any) -> None:
    if number == 10:
        parametrize.register_parametrization(model.blocks[0].layer, "weight", Half())


def add_and_remove_a_hook(number: int, model: Any) -> None:
    if number == 5:
        model.handles.append(model.blocks[0].register_forward_hook(lambda _module, _given, result: 0.5 * result))
    if number == 12:
        model.handles.pop().remove()


def hook_all_modules(number: int, model: Any) -> None:
    def halve(module: nn.Module, _given: Any, result: torch.Tensor) -> torch.Tensor | None:
        return 0.5 * result if isinstance(module, nn.BatchNorm1d) else None

    if number == 5:
        model.handles.append(nn.modules.module.register_module_forward_hook(halve))
    if number == 12:
        model.handles.pop().remove()


def prune_a_layer(number: int, model: Any) -> None:
    if number == 10:
        prune.l1_unstructured(model.blocks[0].layer, "weight", amount=0.3)


def change_a_momentum(number: int, model: Any) -> None:
    model.blocks[0].norm.momentum = [0.1, 0.5, None][number // 7]


def evaluate_a_norm(number: int, model: Any) -> None:
    model.blocks[0].norm.train(number < 10)


def widen_a_buffer(number: int, model: Any) -> None:
    if number == 10:
        model.mask = 1.5 * model.mask.double()
    if number == 15:
        model.mask = model.mask.float()


def fill_a_buffer(number: int, model: Any) -> None:
    model.mask.fill_(1 + number / 10)


def shorten_the_list(number: int, model: Any) -> None:
    if number == 10:
        model.blocks.pop(1)


def turn_the_list(number: int, model: Any) -> None:
    if number == 10:
        model.blocks = nn.ModuleList(list(model.blocks)[::-1])


def change_a_function(number: int, model: Any) -> None:
    model.blocks[0].activation = torch.tanh if number >= 10 else torch.relu


CHANGES = (
    *(freeze_a_block, change_the_number_of_a_parametrization, remove_a_parametrization, add_a_parametrization),
    *(add_and_remove_a_hook, hook_all_modules, prune_a_layer, change_a_momentum, evaluate_a_norm, widen_a_buffer),
    *(fill_a_buffer, shorten_the_list, turn_the_list, change_a_function),
)


def classify(model: nn.Module, rows: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    return nn.functional.cross_entropy(model(rows), labels)


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_a_changed_module_trains_as_in_the_plain_loop(change: Any, digest: Callable[[Any], str]) -> None:
    compare(digest, make=Stack, loss=classify, change=change)


def test_a_weight_with_an_estimated_norm_trains_as_in_the_plain_loop(digest: Callable[[Any], str]) -> None:
    compare(digest, make=Spectral, loss=classify)


def test_a_module_with_several_names_trains_as_in_the_plain_loop(digest: Callable[[Any], str]) -> None:
    compare(digest, make=Siamese, loss=classify)


def test_a_step_that_assigns_a_parameter_is_refused() -> None:
    model = nn.Linear(WIDTH, 3)

    def double(module: nn.Linear, rows: torch.Tensor) -> torch.Tensor:
        module.weight = nn.Parameter(2 * module.weight.detach())
        return module(rows).square().mean()

    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with pytest.raises(UnsupportedError, match=r"^the step assigns a new tensor to the parameter weight; change it"):
        lowtide.torch.training_step(model, double, optimizer, (torch.ones(2, WIDTH),))


def test_a_step_that_adds_a_parameter_is_refused() -> None:
    model = nn.Linear(WIDTH, 3)

    def grow(module: nn.Linear, rows: torch.Tensor) -> torch.Tensor:
        module.scale = nn.Parameter(torch.ones(3))
        return (module(rows) * module.scale).square().mean()

    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with pytest.raises(UnsupportedError, match=r"changes model.scale .*, which changes the parameters"):
        lowtide.torch.training_step(model, grow, optimizer, (torch.ones(2, WIDTH),))
