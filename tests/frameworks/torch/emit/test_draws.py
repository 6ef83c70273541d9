"""Random draws that a plan recomputes return the same numbers, and leave the random state of the plain program."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import lowtide.torch as lt
from lowtide.engine.analysis import simulate
from lowtide.engine.graph import Graph
from lowtide.engine.plan import Free, Plan, Run, Step, StepKind, verify
from lowtide.frameworks.torch.reading.repeatable_draws import SAVED_GENERATOR, draw_again

aten = torch.ops.aten
N = 64
Function = Callable[[torch.Tensor], torch.Tensor]

DRAWS: dict[str, Function] = {
    "dropout": lambda x: nn.functional.dropout(x, 0.3),
    "dropout of half precision": lambda x: nn.functional.dropout(x.half(), 0.3).float(),
    "dropout of a transposed tensor": lambda x: nn.functional.dropout(x.t(), 0.3),
    "dropout of channels": lambda x: nn.functional.dropout2d(x.view(1, 4, 16, N), 0.3).view(N, N),
    "alpha dropout": lambda x: nn.functional.alpha_dropout(x, 0.3, training=True),
    "rates by element": torch.bernoulli,
    "Gumbel noise": lambda x: nn.functional.gumbel_softmax(x),
    "normal noise": torch.randn_like,
    "normal numbers": lambda x: x + torch.normal(0.5, 0.1, (N, N)),
    "uniform numbers": lambda x: torch.rand(N, N) + x,
    "uniform numbers like a tensor": torch.rand_like,
    "integers": lambda x: x + torch.randint(0, 9, (N, N)),
    "integers like a tensor": lambda x: torch.randint_like(x, 5),
    "a permutation": lambda x: x[torch.randperm(N)],
    "a new tensor of one layer": lambda x: x * x.new_empty(N, 1).bernoulli_(0.7).div_(0.7),
    "the tensor itself, not the result of the draw": lambda x: _filled(torch.empty_like(x)),
}


def _filled(empty: torch.Tensor) -> torch.Tensor:
    empty.uniform_().mul_(2).sub_(1)
    return empty


def used_twice(draw: Function) -> Function:
    """Return a program that uses a draw, draws other numbers, and uses the first ones once more."""

    def function(x: torch.Tensor) -> torch.Tensor:
        first = draw(x)
        return (first @ x).sum() + torch.rand(()) + (first * 2).sum()

    return function


def repeating(graph: Graph) -> Plan:
    """Return the baseline, but each draw is freed after its first use and recomputed."""
    steps: list[Step] = []
    waiting = {int(graph.structure.allocates[op][0]): op for op in graph.repeatable.nonzero()[0].tolist()}
    for step in Plan.baseline(graph).steps():
        steps.append(step)
        if isinstance(step, Run):
            for buffer in set(graph.reads[step.op].tolist()) & waiting.keys():
                steps += [Free(buffer), Run(waiting.pop(buffer))]
    return Plan.from_steps(graph, steps)


def outcome(digest: Callable[[Any], str], function: Callable[..., Any], x: torch.Tensor) -> tuple[str, str]:
    """Return the digests of the results from a fixed random state, and of the state after them."""
    torch.manual_seed(3)
    return digest(function(x)), digest(torch.get_rng_state())


@pytest.mark.parametrize("name", DRAWS)
def test_a_repeated_draw_returns_the_same_numbers_within_the_predicted_peak(
    name: str, digest: Callable[[Any], str]
) -> None:
    function, x = used_twice(DRAWS[name]), torch.rand(N, N)
    captured = lt.capture((function, x))
    graph = lt.read(captured)
    plan = repeating(graph)
    assert (plan.kinds == StepKind.RUN).sum() > graph.n_ops
    verify(graph, plan)
    applied = lt.apply(plan, captured)
    assert outcome(digest, applied, x) == outcome(digest, function, x)
    predicted = simulate(graph, plan).peak_bytes["cpu"]
    assert abs(lt.measure_captured(captured, applied).peak_bytes - predicted) <= 4096


@pytest.mark.parametrize(
    "draw",
    [
        pytest.param(lambda x: x.clone().bernoulli_(0.5), id="into a tensor with contents"),
        pytest.param(lambda x: torch.empty_like(x)[:, ::2].bernoulli_(0.5), id="into a part of a tensor"),
        pytest.param(lambda x: nn.functional.rrelu(x, training=True), id="a kernel that changes another tensor"),
    ],
)
def test_a_draw_that_cannot_be_repeated_runs_once(draw: Function) -> None:
    graph = lt.read((lambda x: draw(x).sum() + torch.rand(()), torch.randn(N, N)))
    names = [graph.op_kinds[op] for op in graph.repeatable.nonzero()[0].tolist()]
    assert names == ["aten.rand"]


def test_a_kernel_without_a_generator_draws_from_the_saved_one_and_restores_its_own() -> None:
    x = torch.randn(N, N)
    saved = SAVED_GENERATOR(x.device)
    first = aten.native_dropout(x, 0.5, True)
    torch.rand(3)
    before = torch.get_rng_state()
    operator, keyword = draw_again(aten.native_dropout.default)
    assert all(map(torch.equal, operator(x, 0.5, True, **{keyword: saved}), first))
    assert torch.equal(torch.get_rng_state(), before)


class Blocks(nn.Module):
    """Residual blocks with dropout."""

    def __init__(self, n_blocks: int) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.Linear(32, 128), nn.GELU(), nn.Linear(128, 32), nn.Dropout(0.2)) for _ in range(n_blocks)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = x + block(x)
        return x


def _loss(model: nn.Module, x: torch.Tensor) -> torch.Tensor:
    return model(x).square().mean()


def test_masks_of_dropout_are_recomputed_within_a_low_budget(digest: Callable[[Any], str]) -> None:
    """A step of eight blocks meets a budget below the bytes of its masks and block inputs, and changes no bit."""
    x = torch.randn(512, 32)
    seen: list[list[str]] = []
    for planned in (False, True):
        torch.manual_seed(1)
        model = Blocks(8)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        step: Any = lt.TrainingStep(model, _loss, optimizer)
        if planned:
            step = lt.training_step(model, _loss, optimizer, x, budget="18%")
            graph, plan = step.result.graph, step.result.plan
            runs = plan.targets[plan.kinds == StepKind.RUN].tolist()
            repeated = {op for op in runs if runs.count(op) > 1}
            assert any(graph.repeatable[op] for op in repeated)
            assert step.result.shortfall is None
            measured = step.measure()
            assert measured.outputs_equal
            assert measured.after_bytes == pytest.approx(step.result.peak_bytes["cpu"], rel=0.01)
        torch.manual_seed(2)
        seen.append([digest([step(x), model.state_dict(), torch.get_rng_state()]) for _ in range(3)])
    assert seen[0] == seen[1]
