"""Programs under autocast: planned gradients are eager PyTorch's bit for bit."""

import copy
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx import Graph, GraphModule
from torch.utils.checkpoint import checkpoint

import lowtide
from lowtide.errors import UnsupportedError
from lowtide.frameworks.torch.internals.autocast import with_shared_casts

WIDTH, ROWS = 16, 32
Loss = Callable[["Shared", torch.Tensor], torch.Tensor]


def half(**settings: Any) -> torch.autocast:
    return torch.autocast("cpu", **{"dtype": torch.bfloat16, **settings})


class Shared(nn.Module):
    """Layers that programs use several times, with an embedding tied to the last layer."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(20, WIDTH)
        self.layer, self.norm = nn.Linear(WIDTH, WIDTH), nn.LayerNorm(WIDTH)
        self.attention = nn.MultiheadAttention(WIDTH, 2, batch_first=True)
        self.head = nn.Linear(WIDTH, 20, bias=False)
        self.head.weight = self.embedding.weight

    def block(self, value: torch.Tensor) -> torch.Tensor:
        return value + torch.tanh(self.layer(torch.tanh(self.layer(self.norm(value)))))


def tied_layers(model: Shared, rows: torch.Tensor) -> torch.Tensor:
    with half():
        return model.head(model.block(model.block(model.embedding(rows)))).float().square().mean()


def without_cache(model: Shared, rows: torch.Tensor) -> torch.Tensor:
    with half(cache_enabled=False):
        return model.block(model.block(model.embedding(rows))).float().square().mean()


def switched_off_inside(model: Shared, rows: torch.Tensor) -> torch.Tensor:
    with half():
        value = model.block(model.embedding(rows))
        with half(enabled=False):
            value = model.block(value.float())
        return model.block(value).float().square().mean() + model.layer.weight.square().sum()


def two_regions(model: Shared, rows: torch.Tensor) -> torch.Tensor:
    value = model.embedding(rows)
    for _ in range(2):
        with half():
            value = model.block(value) + value @ model.layer.weight.t()
    return value.float().square().mean()


def repeated_attention(model: Shared, rows: torch.Tensor) -> torch.Tensor:
    with half():
        value = model.embedding(rows)
        for _ in range(2):
            value = model.attention(value, value, value)[0]
        return value.float().square().mean()


def checkpointed(model: Shared, rows: torch.Tensor) -> torch.Tensor:
    with half():
        value = checkpoint(model.block, model.embedding(rows), use_reentrant=False)
        return checkpoint(model.block, value, use_reentrant=False).float().square().mean()


def checkpointed_around_autocast(model: Shared, rows: torch.Tensor) -> torch.Tensor:
    def block(value: torch.Tensor) -> torch.Tensor:
        with half():
            return model.block(value).float()

    return checkpoint(block, model.embedding(rows), use_reentrant=False).square().mean()


def without_gradient(model: Shared, rows: torch.Tensor) -> torch.Tensor:
    with half():
        value = model.embedding(rows)
        with torch.no_grad():
            target = model.block(value)
        return (model.block(value) - target.detach() * 2).float().square().mean()


PROGRAMS = (
    *(tied_layers, without_cache, switched_off_inside, two_regions, repeated_attention),
    *(checkpointed, checkpointed_around_autocast, without_gradient),
)
each_program = pytest.mark.parametrize("loss", PROGRAMS, ids=lambda loss: loss.__name__)


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def make() -> tuple[Shared, torch.Tensor]:
    torch.manual_seed(0)
    return Shared(), torch.randint(0, 20, (4, ROWS))


def compiled(loss: Any) -> Any:
    return torch.compile(loss, backend="lowtide", options={"compiler": "eager", "effort": "fast"})


@each_program
def test_gradients_of_compiled_programs_are_eagers(loss: Loss, digest: Callable[[Any], str]) -> None:
    def gradients(run: Any, outside: bool) -> list[torch.Tensor | None]:
        model, rows = make()
        with half(enabled=outside):
            value = run(model, rows)
        value.backward()
        return [parameter.grad for parameter in model.parameters()]

    for outside in (False, True):
        assert digest(gradients(compiled(loss), outside)) == digest(gradients(loss, outside))


@each_program
def test_a_planned_step_trains_as_the_plain_loop(loss: Loss, digest: Callable[[Any], str]) -> None:
    plain, rows = make()
    planned = copy.deepcopy(plain)
    optimizer = torch.optim.SGD(plain.parameters(), lr=0.5)
    loss(plain, rows).backward()
    optimizer.step()
    own = torch.optim.SGD(planned.parameters(), lr=0.5)
    lowtide.torch.training_step(planned, loss, own, (rows,), budget="100%", effort="fast")(rows)
    assert digest(list(planned.parameters())) == digest(list(plain.parameters()))


@pytest.mark.parametrize("loss", [tied_layers, repeated_attention], ids=lambda loss: loss.__name__)
def test_a_planned_step_needs_the_predicted_memory(loss: Loss) -> None:
    model, rows = make()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    measured = lowtide.torch.training_step(model, loss, optimizer, (rows,), budget="100%", effort="fast").measure()
    assert measured.after_bytes == pytest.approx(measured.predicted_bytes, rel=0.02)


def test_a_backward_pass_under_autocast_warns() -> None:
    model, rows = make()
    with half(), pytest.warns(UserWarning, match="runs under autocast"):
        compiled(tied_layers)(model, rows).backward()


@pytest.mark.parametrize(
    "function",
    [
        lambda x: nn.functional.affine_grid(theta=x[:, :6].view(-1, 2, 3), size=[len(x), 1, 4, 4], align_corners=False),
        lambda x: nn.functional.bilinear(x, x, x.detach()[:3, :, None] * x.detach()[0]),
        torch.linalg.pinv,
    ],
    ids=["affine_grid", "bilinear", "pinv"],
)
def test_kernels_that_autocast_changes_in_eager_pytorch_only_are_refused(function: Any) -> None:
    layer, rows = nn.Linear(WIDTH, WIDTH), torch.randn(4, WIDTH)

    def loss(model: nn.Module, rows: torch.Tensor) -> torch.Tensor:
        value = model(rows)
        with half():
            return function(value).float().square().mean()

    optimizer = torch.optim.SGD(layer.parameters(), lr=0.5)
    with pytest.raises(UnsupportedError, match=r"\(test_autocast.py:\d+\) gives other numbers under autocast"):
        lowtide.torch.training_step(layer, loss, optimizer, (rows,))


def test_inputs_that_autograd_cannot_follow_are_taken_as_they_are() -> None:
    """A view made without gradients raises for `is_leaf` once its base is overwritten with them."""
    with FakeTensorMode():
        base = torch.ones(2, 3)
        with torch.no_grad():
            view = base.t()
        base.mul_(torch.ones(2, 3, requires_grad=True))
    graph = Graph()
    given = graph.placeholder("view")
    given.meta["example_value"] = view
    graph.output((graph.call_function(torch.sin, (given,)),))
    shared = with_shared_casts(GraphModule({}, graph))
    assert [node.name for node in shared.graph.nodes] == [node.name for node in graph.nodes]
