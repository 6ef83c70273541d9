"""Measured costs: every op of a real program gets one, and no state changes."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import lowtide
import lowtide.torch as lt
from lowtide.core.errors import UnsupportedError
from lowtide.engine.costs import read_costs, write_costs_file
from lowtide.engine.plan import verify
from lowtide.frameworks.torch.reading.costs import seconds_of
from lowtide.frameworks.torch.reading.workspaces import form_of, stand_in


class Attention(nn.Module):
    """A block with a convolution, attention, dropout, an embedding and a classification loss."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(50, 16)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(16, 2, 32, dropout=0.1, batch_first=True) for _ in range(2)
        )
        self.mix = nn.Conv1d(16, 16, 3, padding=1)
        self.head = nn.Linear(16, 50)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        value = self.mix(self.embed(tokens).mT).mT
        for layer in self.layers:
            value = layer(value)
        return nn.functional.cross_entropy(self.head(value).flatten(0, 1), tokens.flatten())


def training_step() -> tuple[lt.TrainingStep, tuple[torch.Tensor]]:
    torch.manual_seed(0)
    model = Attention()
    optimizer = torch.optim.AdamW(model.parameters())
    return lt.TrainingStep(model, lambda model, tokens: model(tokens), optimizer), (torch.randint(0, 50, (4, 12)),)


@pytest.fixture(scope="module")
def captured() -> lt.Captured:
    return lt.capture(training_step())


def test_every_op_of_a_training_step_has_a_measured_price_and_plans_made_with_them_say_so(
    captured: lt.Captured, tmp_path: Path
) -> None:
    graph = lt.read(captured)
    prices = lt.measure_costs(captured)
    assert len(prices.seconds) == graph.n_ops
    assert (prices.seconds > 0).all()
    assert (prices.profile, prices.estimated) == ("measured", ())
    assert "CPU" in prices.device
    result = lowtide.minimize(graph, budget="70%", allow={"reorder", "share", "recompute"}, costs=prices)
    verify(graph, result.plan)
    assert result.costs == "measured"
    assert result.base_cost == pytest.approx(float(prices.seconds.sum()))
    path = tmp_path / "here.costs.json.gz"
    write_costs_file(graph, prices, path)
    read = read_costs(str(path), graph)
    assert read.seconds.tolist() == prices.seconds.tolist()
    assert (read.profile, read.device, read.estimated) == ("measured", prices.device, prices.estimated)


def test_ops_of_one_form_share_a_price_and_larger_ones_cost_more() -> None:
    layers = [nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 4096), nn.Linear(4096, 4096)]
    model = nn.Sequential(*layers)
    program = lt.capture((model, (torch.ones(64, 8),)))
    seconds = lt.measure_costs(program).seconds.tolist()
    assert seconds[0] == seconds[1] == seconds[2]
    assert seconds[-1] > 10 * seconds[0]


def test_measuring_changes_neither_parameters_nor_state_nor_random_numbers() -> None:
    step, batch = training_step()
    captured = lt.capture((step, batch))
    before = {name: tensor.clone() for name, tensor in step.model.state_dict().items()}
    torch.manual_seed(7)
    expected = torch.rand(4)
    torch.manual_seed(7)
    lt.measure_costs(captured)
    assert torch.equal(torch.rand(4), expected)
    assert all(torch.equal(before[name], tensor) for name, tensor in step.model.state_dict().items())
    assert not step.optimizer.state


def test_ops_that_cannot_run_alone_keep_the_eager_price_and_are_named() -> None:
    """A Cholesky factor needs a positive definite matrix, a check a valid value."""

    def program(matrix: torch.Tensor) -> torch.Tensor:
        torch._assert_async((matrix > 0).any(), "all zero")
        return torch.linalg.cholesky_ex(matrix @ matrix.mT, check_errors=True)[0].exp()

    captured = lt.capture((program, (torch.eye(3) + 0.1,)))
    prices = lt.measure_costs(captured)
    graph = lt.read(captured)
    kinds = {graph.op_kinds[graph.op_names.index(name)] for name in prices.estimated}
    assert kinds == {"aten._assert_async", "aten.linalg_cholesky_ex"}
    nodes = {node.name: node for node in captured.graph_module.graph.nodes}
    for name in prices.estimated:
        assert prices.seconds[graph.op_names.index(name)] == seconds_of(nodes[name])


def test_an_op_that_calls_graphs_takes_what_the_longest_branch_takes() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        return torch.cond(x.sum() > 0, lambda x: (x @ x).relu(), lambda x: x.neg(), (x,)).exp()

    captured = lt.capture((program, (torch.ones(16, 16),)))
    graph, prices = lt.read(captured), lt.measure_costs(captured)
    assert set(prices.callees) == set(graph.subgraphs)
    place = graph.op_kinds.index("conditional")
    assert prices.seconds[place] == max(inner.seconds.sum() for inner in prices.callees.values())


def test_a_program_for_a_device_that_is_not_here_is_refused() -> None:
    with torch.device("meta"):
        model, x = nn.Linear(4, 4), torch.empty(2, 4)
    captured = lt.capture((model, (x,)))
    with pytest.raises(UnsupportedError, match="can be run on meta"):
        lt.measure_costs(captured)


@pytest.mark.parametrize(
    "tensor",
    [
        torch.ones(3, 4),
        torch.ones(3, 4).T,
        torch.ones(4).expand(3, 4),
        torch.ones(2, 3, 4, 5).to(memory_format=torch.channels_last),
        torch.ones(0, 4),
        torch.tensor(2.5),
        torch.ones(3, dtype=torch.int64),
        torch.ones(3, dtype=torch.bool),
        torch.ones(3, dtype=torch.complex64),
        torch.ones(3, dtype=torch.bfloat16),
    ],
)
def test_a_stand_in_has_the_form_of_the_tensor_it_stands_for(tensor: torch.Tensor) -> None:
    value: Any = stand_in([tensor, 3])
    assert form_of(value) == form_of([tensor, 3])
    assert value[0].data_ptr() != tensor.data_ptr() or not tensor.numel()
    assert torch.isfinite(value[0]).all()
