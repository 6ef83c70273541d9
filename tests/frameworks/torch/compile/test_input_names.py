"""What a compiled program is given has the names that the user gave it."""

from collections.abc import Callable, Mapping
from typing import Any

import pytest
import torch
from torch import nn

import lowtide.torch as lt
from lowtide.engine.graph import Lifetime
from lowtide.frameworks.torch.planning.programs import forget_programs, planned_programs

ROWS, WIDTH = 256, 32
pytestmark = [
    pytest.mark.usefixtures("quick_inductor"),
    pytest.mark.filterwarnings("ignore:.*torch.jit.script_method:DeprecationWarning"),  # Inductor's own
]


class Block(nn.Module):
    """Parameters, a buffer, and a tensor in neither."""

    def __init__(self) -> None:
        super().__init__()
        self.mlp = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.GELU(), nn.Linear(WIDTH, WIDTH))
        self.register_buffer("mask", torch.ones(ROWS, WIDTH))
        self.scales = [torch.ones(ROWS, WIDTH)]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.mlp(x) * self.mask * self.scales[0]


class Net(nn.Module):
    """Blocks, and a batch in a dict."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([Block(), Block()])

    def forward(self, x: torch.Tensor, batch: Mapping[str, torch.Tensor], *more: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = block(x)
        return (x + batch["targets"] + more[0]).square().mean()


def _names(run: Callable[..., Any], *args: Any) -> set[str]:
    run(*args)
    (program,) = planned_programs()
    graph = program.graph
    given = graph.lifetimes <= Lifetime.INPUT
    return {name for name, is_given in zip(graph.buffer_names, given, strict=True) if is_given}


def _compiled(function: Any, **options: Any) -> Any:
    torch._dynamo.reset()  # pyright: ignore[reportPrivateUsage]
    forget_programs()
    return torch.compile(function, backend="lowtide", options={"compiler": "eager", **options})


def _tensors(n: int) -> list[torch.Tensor]:
    return [torch.randn(ROWS, WIDTH) for _ in range(n)]


@pytest.mark.parametrize(("compiler", "needs_gradients"), [("eager", True), ("eager", False), ("inductor", True)])
def test_parameters_and_buffers_have_their_paths_and_inputs_are_named_as_they_are_read(
    compiler: str, needs_gradients: bool
) -> None:
    net = Net().requires_grad_(needs_gradients)
    held = dict(net.named_parameters()) | dict(net.named_buffers())
    x, targets, more = _tensors(3)
    scales = {f"blocks.{place}.scales[0]" for place in range(2)}
    found = _names(_compiled(net, compiler=compiler), x, {"targets": targets}, more)
    assert found == {*held, *scales, "x", "batch['targets']", "more[0]"}


def test_a_module_names_its_parameters_however_it_is_compiled() -> None:
    """As a bare `nn.Sequential`, which TorchDynamo wraps, and as what a function is given."""
    model = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.GELU())
    (x,) = _tensors(1)
    assert _names(_compiled(model), x) > set(dict(model.named_parameters()))
    assert _names(_compiled(lambda model, x: model(x)), model, x) > set(dict(model.named_parameters()))


def test_a_program_in_chunks_names_its_inputs_as_the_whole_does() -> None:
    (targets,) = torch.randint(0, 4096, (1, ROWS))
    (x,) = _tensors(1)
    head = nn.Linear(WIDTH, 4096)
    loss = _compiled(lambda x, targets: nn.functional.cross_entropy(head(x), targets), budget="40%")
    assert _names(loss, x, targets) == {"weight", "bias", "x", "targets"}
    (program,) = planned_programs()
    assert program.result.chunk_cost > 0


def test_a_missed_budget_and_the_explanation_name_the_batch_that_is_live() -> None:
    x, targets, more = _tensors(3)
    with pytest.warns(UserWarning, match=r"live then: .*\bx \("):
        _compiled(Net(), budget="10%")(x, {"targets": targets}, more).backward()
    held = [each.name for peak in lt.explain().programs[0].planned for each in peak.holders]
    assert {"x", "batch['targets']"} <= set(held)
    assert not any("primals" in name for name in held)
