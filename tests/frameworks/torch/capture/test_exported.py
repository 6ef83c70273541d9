"""Exported programs and traced graph modules are captured, planned and run."""

import io
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.fx.experimental.proxy_tensor import make_fx

import lowtide.torch as lt
from lowtide import minimize
from lowtide.core.errors import FingerprintError, UnsupportedError, VerificationError
from lowtide.engine.graph import Lifetime
from lowtide.engine.plan import CopyIn, CopyOut, Plan, Run


class Branching(nn.Module):
    """A convolutional net with statistics, a call counter in a buffer, and two heads."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU())
        self.heads = nn.ModuleList([nn.Conv2d(8, 4, 1), nn.Conv2d(8, 4, 3, padding=1)])
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        self.calls.add_(1)
        shared = self.stem(images)
        return torch.cat([head(shared) for head in self.heads], dim=1) / self.calls


class Choosing(nn.Module):
    """A conditional with two graphs as branches."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cond(x.sum() > 0, lambda t: (t @ t).sin() + 1, lambda t: t.cos(), (x * 2,))


def exported() -> torch.export.ExportedProgram:
    """Return an exported net in training mode."""
    torch.manual_seed(0)
    return torch.export.export(Branching().train(), (torch.randn(2, 3, 9, 9),))


def test_an_exported_program_keeps_outputs_and_mutated_buffers(plans_of: Any, digest: Any) -> None:
    images = torch.randn(2, 3, 9, 9)
    program = exported()
    module = program.module()
    with torch.no_grad():
        expected = digest([[module(images), module(images)], dict(module.state_dict())])
    for plan in plans_of(lt.read(exported()), 3):
        program = exported()
        captured = lt.capture(program)
        applied = lt.apply(plan, captured)
        found = [applied(images), applied(images)]
        assert digest([found, dict(captured.binding.modules.modules[0].state_dict())]) == expected


def test_a_saved_program_gives_the_graph_of_the_one_that_was_saved(tmp_path: Path) -> None:
    file = tmp_path / "net.pt2"
    torch.export.save(exported(), file)
    assert lt.read(torch.export.load(file)).fingerprint == lt.read(exported()).fingerprint


def test_branches_of_a_conditional_are_callees(plans_of: Any, digest: Any) -> None:
    x = torch.randn(5, 5)
    program = torch.export.export(Choosing(), (x,))
    graph = lt.read(program)
    (calling,) = [op for op in range(graph.n_ops) if graph.callees[op]]
    assert graph.op_kinds[calling] == "conditional"
    assert {graph.subgraphs[name].n_ops for name in graph.callees[calling]} == {1, 3}
    for value in (x.abs(), -x.abs()):
        expected = digest(Choosing()(value))
        for plan in plans_of(graph, 2):
            assert digest(lt.apply(plan, program)(value)) == expected


def test_a_traced_graph_module_is_taken_as_it_stands(plans_of: Any, digest: Any) -> None:
    weight = torch.randn(4, 4)

    def function(x: torch.Tensor, y: torch.Tensor) -> list[torch.Tensor]:
        return [(x @ weight).relu() + y, torch.zeros_like(x)]

    inputs = (torch.randn(3, 4), torch.randn(3, 4))
    module = make_fx(function, tracing_mode="fake", _allow_non_fake_inputs=True)(*inputs)
    captured = lt.capture(module)
    graph = lt.read(captured)
    assert Lifetime.PERSISTENT in graph.lifetimes
    for plan in plans_of(graph, 3):
        assert digest(lt.apply(plan, captured)(*inputs)) == digest(function(*inputs))


def test_a_symbolically_traced_module_is_refused_with_the_way_around() -> None:
    with pytest.raises(UnsupportedError, match="example inputs"):
        lt.read(torch.fx.symbolic_trace(nn.Sequential(nn.Linear(2, 2), nn.ReLU())))


def test_what_is_no_program_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="pass \\(function or module, example inputs\\)"):
        lt.read(io.BytesIO())


def test_a_plan_of_another_graph_is_refused() -> None:
    plan = Plan.baseline(lt.read((nn.Linear(2, 2), (torch.ones(1, 2),))))
    with pytest.raises(FingerprintError, match="another graph"):
        lt.apply(plan, (nn.Linear(3, 3), (torch.ones(1, 3),)))


def test_a_wrong_plan_is_refused() -> None:
    """Plans are verified before they are applied."""
    program = (torch.nn.functional.relu, (torch.ones(4),))
    graph = lt.read(program)
    plan = Plan.from_steps(graph, [Run(0), CopyOut(1, 0), CopyIn(1, 0)])
    with pytest.raises(VerificationError, match="home space"):
        lt.apply(plan, program)


class Softmax(nn.Module):
    """A softmax that a plan computes in place."""

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        return torch.softmax(rows @ rows.t(), -1).sum(0)


def test_a_file_with_rows_written_in_place_has_only_operators_of_pytorch(tmp_path: Path) -> None:
    rows, path = torch.randn(64, 8), tmp_path / "planned.pt2"
    model = lt.TorchModel(torch.export.export(Softmax(), (rows,)))
    result = minimize(model.graph)
    assert len(result.plan.pairs.values) > 0
    model.save(result.plan, path)
    planned = torch.export.load(path)
    targets = [str(node.target) for node in planned.graph.nodes if node.op == "call_function"]
    assert "aten._softmax.out" in targets
    assert all(target.startswith("aten.") for target in targets)
    assert torch.equal(planned.module()(rows), Softmax()(rows))
