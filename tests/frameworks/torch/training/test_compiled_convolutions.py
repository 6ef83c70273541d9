"""A whole step is planned with what Inductor makes of it: layouts of convolutions, and prices of ops to be fused."""

import pytest
import torch
from torch import nn

import lowtide.torch as lt
from lowtide.engine.costs import price
from lowtide.frameworks.torch.planning.options import DEFAULTS
from lowtide.frameworks.torch.planning.read_program import scratch_under_inductor
from lowtide.frameworks.torch.reading.scratch import scratch_bytes
from lowtide.frameworks.torch.training.step_request import CompilerName, StepRequest
from tests.oracles.residual_chain import residual_chain

pytestmark = [
    pytest.mark.usefixtures("quick_inductor"),
    pytest.mark.filterwarnings("ignore:.*torch.jit.script_method:DeprecationWarning"),  # Inductor's own
]


class Net(nn.Module):
    """Two convolutions, and the loss."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 8, 3))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.layers(images).square().mean()


def test_convolutions_of_a_compiled_step_take_what_they_do_where_channels_stand_together() -> None:
    model = Net().train()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    step = lt.training_step(model, None, optimizer, (torch.randn(2, 3, 16, 16),), compiler="inductor")
    assert isinstance(step, lt.PlannedStep)
    module, graph = step.unmodified.graph_module, step.unmodified_graph
    taken = dict(zip(graph.op_names, graph.scratch.tolist(), strict=True))
    convolutions = [node for node in module.graph.nodes if "convolution" in node.name and node.name in taken]
    laid_out = scratch_under_inductor(module)
    assert len(convolutions) == 4
    for node in convolutions:
        assert taken[node.name] == laid_out(node) != scratch_bytes(node)


def test_planning_a_compiled_step_ends_where_prices_before_fusion_are_worth_no_more() -> None:
    graph = residual_chain(4)
    compilers: tuple[CompilerName, ...] = ("inductor", "eager")
    fused, eager = (
        StepRequest("70%", DEFAULTS.techniques, effort="fast", compiler=name).settings.prices(graph)
        for name in compilers
    )
    assert fused.precision > eager.precision == 0.0
    assert fused.seconds.tolist() == price(graph, "fused").seconds.tolist()
