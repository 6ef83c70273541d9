"""Programs without memory: models on "meta" or in a fake mode, and tensors with data-dependent sizes."""

from typing import Any

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv

import lowtide
from lowtide.core.errors import UnsupportedError
from lowtide.engine.graph import Graph
from lowtide.torch import TrainingStep

ROWS = 32


class Experts(nn.Module):
    """Each row chooses one expert."""

    def __init__(self, most: int = ROWS) -> None:
        super().__init__()
        self.router, self.most = nn.Linear(8, 2), most
        self.weights = nn.ParameterList(nn.Parameter(torch.ones(8, 64)) for _ in range(2))

    def forward(self, value: torch.Tensor) -> torch.Tensor:
        chosen, made = self.router(value).argmax(-1), torch.zeros_like(value)
        for expert, weight in enumerate(self.weights):
            rows = torch.nonzero(chosen == expert).squeeze(1)
            torch._check(rows.shape[0] <= self.most)
            made = made.index_add(0, rows, torch.sin(value[rows] @ weight) @ weight.T)
        return made.square().mean()


def _step(**given: Any) -> tuple[TrainingStep, tuple[torch.Tensor]]:
    model = Experts(**given)
    return TrainingStep(model, None, torch.optim.SGD(model.parameters())), (torch.ones(ROWS, 8),)


def _figures(graph: Graph) -> tuple[Any, ...]:
    return graph.op_kinds, graph.sizes.tolist(), graph.reads.values.tolist()


@pytest.mark.parametrize("shapes", [False, True])
@pytest.mark.parametrize("is_on", [False, True])
def test_a_step_in_a_fake_mode_is_read_as_the_real_one(shapes: bool, is_on: bool) -> None:
    """With and without a ShapeEnv, inside and after the mode."""
    real = lowtide.read(_step())
    with FakeTensorMode(shape_env=ShapeEnv() if shapes else None, allow_non_fake_inputs=True):
        step = _step()
        graph = lowtide.read(step) if is_on else None
    assert _figures(lowtide.read(step) if graph is None else graph) == _figures(real)


def test_sizes_that_depend_on_values_are_planned_at_the_most_that_the_program_allows() -> None:
    graphs = [lowtide.read(_step(most=most)) for most in (ROWS, ROWS // 2)]
    wide, narrow = (max(size for size in graph.sizes.tolist()) for graph in graphs)
    assert (wide, narrow) == (ROWS * 64 * 4, ROWS // 2 * 64 * 4)
    assert sum("planned at its upper bound" in note for note in graphs[0].unmodeled) == 2


def test_a_size_that_nothing_limits_is_refused_with_what_to_say() -> None:
    with pytest.raises(UnsupportedError, match="has no upper bound; add one to the program"):
        lowtide.read((lambda value: torch.zeros(value.sum().int().item()), (torch.ones(3),)))


def test_a_planned_step_runs_with_as_much_as_there_is() -> None:
    """The choice of experts differs between calls."""
    torch.manual_seed(0)
    step, twin = _step()[0], _step()[0]
    twin.model.load_state_dict(step.model.state_dict())
    planned = lowtide.torch.training_step(
        step.model, None, step.optimizer, example_batch=(torch.ones(ROWS, 8),), budget="90%"
    )
    for _ in range(3):
        batch = torch.randn(ROWS, 8)
        loss = twin.model(batch)
        twin.optimizer.zero_grad()
        loss.backward()
        twin.optimizer.step()
        assert torch.equal(planned(batch), loss)
