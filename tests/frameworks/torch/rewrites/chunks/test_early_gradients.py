"""Gradients of a loss move to the forward pass where they are linear in the incoming gradient, and only there."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.fx import GraphModule

from lowtide.frameworks.torch.rewrites.boundary import TURN_BACK, InsertBoundary
from lowtide.frameworks.torch.rewrites.chunks.early_gradients import EarlyGradients
from lowtide.frameworks.torch.rewrites.chunks.losses import LossesOfRows
from lowtide.frameworks.torch.rewrites.chunks.region_search import find_product_regions
from lowtide.frameworks.torch.rewrites.run import run_rewrites
from tests.frameworks.torch.rewrites.examples import trace

aten = torch.ops.aten
EARLY = EarlyGradients(any_order=True)
SCALE = 0.3


def _joint(of_tangent: Callable[[Any], Any] = lambda tangent: tangent, dtype: torch.dtype = torch.float32) -> Any:
    def joint(x: Any, w: Any, wanted: Any, tangents: Any) -> Any:
        logarithms = aten._log_softmax(x.mm(w), 1, False)
        loss, total = aten.nll_loss_forward(logarithms, wanted, None, 1, -100)
        given = of_tangent(tangents)
        of_loss = aten.nll_loss_backward(given, logarithms, wanted, None, 1, -100, total)
        of_logits = aten._log_softmax_backward_data(of_loss, logarithms, 1, dtype)
        return loss, of_logits.mm(w.t()), x.t().mm(of_logits)

    return joint


def _inputs(dtype: torch.dtype = torch.float32) -> list[torch.Tensor]:
    torch.manual_seed(0)
    shapes = torch.randn(96, 64, dtype=dtype), torch.randn(64, 9000, dtype=dtype)
    return [*shapes, torch.randint(0, 9000, (96,)), torch.tensor(SCALE, dtype=dtype)]


def _module(joint: Any, inputs: list[torch.Tensor]) -> GraphModule:
    return run_rewrites(trace(joint, *inputs), [LossesOfRows(min_bytes=0), InsertBoundary(1)])


def test_one_pass_over_the_rows_is_enough_afterwards() -> None:
    module = _module(_joint(), _inputs())
    _, refused = find_product_regions(module.graph, any_order=True)
    assert [each.two_passes is not None for each in refused if each.product.name == "mm"] == [True]
    regions, _ = find_product_regions(run_rewrites(module, [EARLY]).graph, any_order=True)
    (region,) = (each for each in regions if each.product.name == "mm")
    assert {"mm", "mm_1", "mm_2"} <= {node.name for node in region.ops}


@pytest.mark.parametrize("of_tangent", [torch.sin, lambda tangent: tangent + 1], ids=["sine", "sum"])
def test_gradients_that_are_not_linear_stay_in_the_backward_pass(of_tangent: Callable[[Any], Any]) -> None:
    assert EARLY.sites(_module(_joint(of_tangent), _inputs())) == []


@pytest.mark.parametrize("of_tangent", [torch.neg, lambda tangent: tangent * 3 / 8], ids=["negative", "multiple"])
def test_linear_ops_on_the_way_do_not_matter(of_tangent: Callable[[Any], Any]) -> None:
    module = run_rewrites(_module(_joint(of_tangent), _inputs()), [EARLY])
    names = [node.name for node in module.graph.nodes]
    (turn,) = module.graph.find_nodes(op="call_function", target=TURN_BACK)
    assert names.index("mm_2") < names.index(turn.name)


def test_gradients_in_float16_keep_the_scale_of_the_loss() -> None:
    half = torch.float16
    assert EARLY.sites(_module(_joint(dtype=half), _inputs(half))) == []


def test_a_program_without_a_boundary_is_left_alone() -> None:
    assert EARLY.sites(trace(_joint(), *_inputs())) == []
