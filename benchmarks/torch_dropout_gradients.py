"""Gradients through dropout where a memory budget has PyTorch compute values again, held against finite differences.

A loss is a function of the weights once the random stream is fixed. Its slope along one direction is measured by a
central difference of the compiled function itself, in double precision, and compared with what its backward pass says.
"""

from collections.abc import Callable
from typing import Any

import torch
from results import write_section
from torch import nn

BUDGETS = (1.0, 0.5, 0.3)
STEP = 1e-6
SEED = 7


class Net(nn.Module):
    """Four layers with dropout behind each."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(16, 16) for _ in range(4))
        self.dropout = nn.Dropout(0.3)

    def forward(self, value: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            value = self.dropout(nn.functional.gelu(layer(value)))
        return value.square().mean()


def slopes(net: Net, function: Callable[[torch.Tensor], torch.Tensor], batch: torch.Tensor) -> tuple[float, float]:
    """Return the slope of a loss along one direction: what its backward pass says, and a central difference."""
    torch.manual_seed(1)
    direction = [torch.randn_like(parameter) for parameter in net.parameters()]

    def loss() -> torch.Tensor:
        torch.manual_seed(SEED)
        return function(batch)

    def moved(by: float) -> float:
        start = [parameter.detach().clone() for parameter in net.parameters()]
        with torch.no_grad():
            for parameter, along in zip(net.parameters(), direction, strict=True):
                parameter.add_(along, alpha=by)
        there = loss().item()
        with torch.no_grad():
            for parameter, before in zip(net.parameters(), start, strict=True):
                parameter.copy_(before)
        return there

    net.zero_grad()
    loss().backward()
    gradients = [parameter.grad for parameter in net.parameters()]
    told = sum(
        float((gradient * along).sum())
        for gradient, along in zip(gradients, direction, strict=True)
        if gradient is not None
    )
    return told, (moved(STEP) - moved(-STEP)) / (2 * STEP)


def main() -> None:
    """Compare all ways to compile the net, and write the section."""
    torch.manual_seed(0)
    net, batch = Net().double(), torch.randn(32, 16, dtype=torch.float64)
    rows: list[str] = []

    def row(name: str, budget: float | None, options: dict[str, Any]) -> None:
        torch.compiler.reset()
        function = torch.compile(net, **options) if options else net
        told, measured = slopes(net, function, batch)
        wrong = abs(told / measured - 1)
        rows.append(
            f"| {name} | {'-' if budget is None else f'{budget:.0%}'} | {told:.6f} | {measured:.6f} | {wrong:.1%} |"
        )
        print(rows[-1], flush=True)

    row("eager", None, {})
    for budget in BUDGETS:
        with torch._functorch.config.patch(activation_memory_budget=budget):
            row("Inductor, `activation_memory_budget`", budget, {"backend": "inductor"})
        row("lowtide, compiled by Inductor", budget, {"backend": "lowtide", "options": {"budget": budget}})
        options = {"budget": budget, "compiler": "eager"}
        row("lowtide, op by op", budget, {"backend": "lowtide", "options": options})
    lines = [
        f"PyTorch {torch.__version__} on the CPU, four layers with dropout of 0.3 in double precision. The slope of",
        "the loss along one direction: what the backward pass says, and a central difference of the same compiled",
        "function with the same random stream. Each compiler draws numbers of its own, so that only the figures of one",
        "row must agree. Where lowtide cannot meet the budget, it warns and runs the plan of least peak.",
        "",
        "| compiled with | budget | backward pass | finite difference | off by |",
        "|---|--:|--:|--:|--:|",
        *rows,
    ]
    write_section("Gradients through dropout", "python benchmarks/torch_dropout_gradients.py", "\n".join(lines))


if __name__ == "__main__":
    main()
