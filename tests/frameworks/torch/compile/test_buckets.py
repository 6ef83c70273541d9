"""Dynamic sizes share a plan within a bucket, so the plan is made at the largest size of it."""

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from lowtide.frameworks.torch.measure.allocation_events import peak_of_call
from lowtide.frameworks.torch.planning.programs import forget_programs, planned_programs

WIDTH = 64
LARGEST = 256
pytestmark = pytest.mark.filterwarnings(
    "ignore:The .grad attribute of a Tensor that is not a leaf",  # TorchDynamo looks at it
    "ignore::DeprecationWarning",
    "ignore:Dynamo detected",
)


class Residual(nn.Module):
    """Layers beside a path around them; a break splits them into two graphs where it is asked for."""

    def __init__(self, *, breaks: bool = False) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(3))
        self.breaks = breaks

    def block(self, layer: nn.Module, value: Tensor) -> Tensor:
        return functional.gelu(layer(value)).cos()

    def forward(self, value: Tensor) -> Tensor:
        for layer in self.layers[:1]:
            value = value + self.block(layer, value)
        if self.breaks:
            torch._dynamo.graph_break()  # pyright: ignore[reportPrivateUsage]
        for layer in self.layers[1:]:
            value = value + self.block(layer, value)
        return value.pow(2).mean()


class Attention(Residual):
    """What it keeps grows with the square of the size."""

    def block(self, layer: nn.Module, value: Tensor) -> Tensor:
        return (layer(value) @ value.t()).softmax(-1).sin() @ value


def _peak(model: nn.Module, run: nn.Module, tokens: int) -> int:
    """Return the peak of a step, its batch included."""
    batch = torch.randn(tokens, WIDTH)
    for _ in range(3):  # in the first steps a program of several graphs is planned anew
        model.zero_grad(set_to_none=True)
        peak, _ = peak_of_call(lambda: run(batch).backward(), torch.device("cpu"))
    return peak + batch.nbytes


@pytest.mark.share_of_cases
@pytest.mark.usefixtures("quick_inductor")
@pytest.mark.parametrize(
    ("kind", "compiler", "allowed", "breaks"),
    [
        (Residual, "eager", 480_000, True),
        (Attention, "eager", 1_900_000, True),
        (Residual, "inductor", 420_000, False),
    ],
)
def test_a_budget_in_bytes_is_met_at_every_size_of_a_bucket(
    kind: type[Residual], compiler: str, allowed: int, breaks: bool
) -> None:
    """The first call would fit as it is; the largest one, which shares its plan, would not."""
    forget_programs()
    torch._dynamo.reset()  # pyright: ignore[reportPrivateUsage]
    torch.manual_seed(0)
    model = kind(breaks=breaks)
    held = sum(each.nbytes for each in model.parameters())
    options = {"compiler": compiler, "budget": f"{allowed + held} B"}
    run = torch.compile(model, backend="lowtide", options=options, dynamic=True)
    for tokens in (130, LARGEST):
        assert _peak(model, run, tokens) <= allowed
    assert len(planned_programs()) == 1 + breaks
    assert any(planned.result.reruns for planned in planned_programs())


def test_a_percentage_is_of_what_the_largest_size_takes() -> None:
    """What is met at 60 % is less than what the smaller size takes as it is, and more than 60 % of that."""
    forget_programs()
    torch._dynamo.reset()  # pyright: ignore[reportPrivateUsage]
    alone = torch.compile(Residual(), backend="lowtide", options={"compiler": "eager", "budget": "100%"}, dynamic=False)
    alone(torch.randn(LARGEST, WIDTH)).backward()
    torch.compile(Residual(), backend="lowtide", options={"compiler": "eager", "budget": "60%"}, dynamic=True)(
        torch.randn(130, WIDTH)
    ).backward()
    largest, bucket = planned_programs()
    assert bucket.own_peak_bytes == pytest.approx(largest.own_peak_bytes, abs=64)  # sizes are inputs, too
