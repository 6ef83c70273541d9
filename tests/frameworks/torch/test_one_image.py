"""Programs of one image, whose traced strides would differ from a run's: planned, they compute what eager computes."""

import copy
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import nn

import lowtide
from lowtide.frameworks.torch.internals.fake_strides import strides_as_in_eager
from lowtide.frameworks.torch.internals.fake_tensors import FakeMode

CHANNELS, SIDE = 16, 4
Change = Callable[[torch.Tensor], torch.Tensor]

CHANGES: dict[str, Change] = {
    "number": lambda rows: rows / 2,
    "activation": nn.functional.silu,
    "sum": lambda rows: rows + rows.sin(),
    "bias": lambda rows: rows + torch.ones(rows.shape[-1]),
    "masked": lambda rows: torch.where(rows > 0, rows, rows * 2),
    "flat": lambda rows: rows.reshape(1, -1, 1),
}


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


class Rows(nn.Module):
    """The rows of one image, turned back into an image and normalized."""

    def __init__(self, change: Change) -> None:
        super().__init__()
        self.change = change
        self.project, self.norm = nn.Linear(CHANNELS, CHANNELS), nn.GroupNorm(4, CHANNELS)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        rows = self.project(image.flatten(2).transpose(1, 2))
        back = self.change(rows.transpose(1, 2).reshape(image.shape))
        return self.norm(back.reshape(image.shape)).square().mean()


@pytest.mark.parametrize("change", CHANGES)
def test_one_image_computes_eagers_bits(change: str, digest: Callable[[Any], str]) -> None:
    torch.manual_seed(0)
    plain, image = Rows(CHANGES[change]), torch.randn(1, CHANNELS, SIDE, SIDE)
    compiled, planned = copy.deepcopy(plain), copy.deepcopy(plain)
    plain(image).backward()
    torch.compile(compiled, backend="lowtide", options={"compiler": "eager", "effort": "fast"})(image).backward()
    assert digest([each.grad for each in compiled.parameters()]) == digest([each.grad for each in plain.parameters()])
    optimizer = torch.optim.SGD(planned.parameters(), lr=0.5)
    lowtide.torch.training_step(planned, planned.__class__.__call__, optimizer, (image,), budget="100%")(image)
    torch.optim.SGD(plain.parameters(), lr=0.5).step()
    assert digest(list(planned.parameters())) == digest(list(plain.parameters()))


@pytest.mark.parametrize("change", CHANGES)
def test_fake_results_have_the_strides_of_a_run(change: str) -> None:
    generator = torch.Generator().manual_seed(0)
    for _ in range(40):
        shape = [int(size) for size in torch.tensor([1, 1, 2, 4])[torch.randint(0, 4, (4,), generator=generator)]]
        order = torch.randperm(4, generator=generator).tolist()
        given = torch.randn(shape).permute(order)
        given = given.narrow(int(torch.randint(0, 4, (), generator=generator)), 0, 1)
        with FakeMode() as mode, strides_as_in_eager():
            fake = CHANGES[change](mode.from_tensor(given))
        assert fake.stride() == CHANGES[change](given).stride()
