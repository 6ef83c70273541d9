"""Batch norms run again although their statistics are updated in between."""

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from lowtide.frameworks.torch.planning.programs import forget_programs, planned_programs


def test_batch_norms_run_again_where_that_is_cheapest(digest: Callable[[Any], str]) -> None:
    """They cost less than the convolutions; statistics are updated once, and all bits are those of eager PyTorch."""
    torch._dynamo.reset()
    forget_programs()
    torch.manual_seed(0)
    layers = [part for _ in range(6) for part in (nn.Conv2d(16, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU())]
    model = nn.Sequential(*layers)
    twin = copy.deepcopy(model)
    batch = torch.randn(8, 16, 16, 16)

    def run(call: Callable[..., Any], module: nn.Module) -> str:
        loss = call(batch).square().mean()
        loss.backward()
        return digest([loss, [parameter.grad for parameter in module.parameters()], list(module.buffers())])

    compiled = torch.compile(twin, backend="lowtide", options={"compiler": "eager", "budget": "70%", "costs": "fused"})
    assert run(compiled, twin) == run(model, model)
    (program,) = planned_programs()
    order = program.result.plan.order().tolist()
    repeated = {program.graph.op_kinds[op] for op in order if order.count(op) > 1}
    assert "aten._native_batch_norm_legit_functional" in repeated
    assert program.result.shortfall is None
