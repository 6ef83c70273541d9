"""The costs of ops are their eager prices, and their FLOPs equal PyTorch's counts."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils.flop_counter import FlopCounterMode

import lowtide.torch as lt
from lowtide.engine.costs import carries_costs, price
from lowtide.engine.costs.estimates import plain_kind


def test_costs_equal_the_eager_profile_from_sizes_if_sizes_determine_the_work() -> None:
    """Matrix products, 3 x 3 convolutions with a bias and pointwise ops in single precision."""
    model = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 36, 32), nn.Tanh())
    graph = lt.read((model, torch.randn(4, 3, 6, 6)))
    assert carries_costs(graph)
    assert price(graph, "eager").seconds.tolist() == graph.cost.tolist()
    from_sizes = price(replace(graph, cost=np.ones(graph.n_ops)), "eager").seconds
    assert from_sizes.tolist() == pytest.approx(graph.cost.tolist())


def test_flops_equal_pytorchs_counter_and_one_per_element_elsewhere() -> None:
    """A convolution, a batched product, their backward passes, and 5 element-wise results."""
    weight, other = torch.randn(8, 3, 3, 3), torch.randn(4, 36, 5)

    def step(images: torch.Tensor, *weights: torch.Tensor) -> tuple[torch.Tensor, ...]:
        weights = tuple(each.detach().requires_grad_() for each in weights)
        with torch.enable_grad():
            loss = (functional.conv2d(images, weights[0], padding=1).flatten(2) @ weights[1]).tanh().square().sum()
        return torch.autograd.grad(loss, weights)

    images = torch.randn(4, 3, 6, 6)
    counter = FlopCounterMode(display=False)
    with counter:
        step(images, weight, other)
    graph = lt.read((step, (images, weight, other)))
    counted = [name in ("convolution", "convolution_backward", "bmm") for name in map(plain_kind, graph.op_kinds)]
    assert graph.flops[counted].sum() == counter.get_total_flops()
    others = [op for op, known in enumerate(counted) if not known]
    assert graph.flops[others].tolist() == [graph.sizes[graph.writes[op]].sum() // 4 for op in others]


def test_attention_has_equal_flops_on_the_cpu_and_other_devices() -> None:
    """Two products of (heads, 8, 16) and (heads, 16, 8) each way forward, five backward."""
    query, key, value = (torch.randn(2, 3, 8, 16) for _ in range(3))

    def attend(*operands: torch.Tensor) -> tuple[torch.Tensor, ...]:
        query, key, value = (each.detach().requires_grad_() for each in operands)
        with torch.enable_grad():
            return torch.autograd.grad(
                functional.scaled_dot_product_attention(query, key, value).sum(), (query, key, value)
            )

    graph = lt.read((attend, (query, key, value)))
    flops = {name: graph.flops[op] for op, name in enumerate(map(plain_kind, graph.op_kinds))}
    product = 2 * (2 * 3) * 8 * 16 * 8
    assert flops["_scaled_dot_product_flash_attention_for_cpu"] == 2 * product
    assert flops["_scaled_dot_product_flash_attention_for_cpu_backward"] == 5 * product


def test_grouped_products_count_as_one_product() -> None:
    """24 rows of 16 for three experts of 16 x 8: once forward, and once for each of the two gradients."""
    rows, experts = (torch.randn(shape, dtype=torch.bfloat16) for shape in ((24, 16), (3, 16, 8)))
    ends = torch.tensor([8, 16, 24], dtype=torch.int32)

    def step(rows: torch.Tensor, experts: torch.Tensor) -> tuple[torch.Tensor, ...]:
        rows, experts = rows.detach().requires_grad_(), experts.detach().requires_grad_()
        with torch.enable_grad():
            loss = functional.grouped_mm(rows, experts, offs=ends).square().sum()
        return torch.autograd.grad(loss, (rows, experts))

    graph = lt.read((step, (rows, experts)))
    products = [op for op, kind in enumerate(graph.op_kinds) if plain_kind(kind) == "_grouped_mm"]
    assert graph.flops[products].tolist() == [2 * 24 * 16 * 8] * 3
