"""The PyTorch reader's costs are the eager prices of its ops, from shapes; sizes alone give the same where they can."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

import lowtide.torch as lt
from lowtide.costs import carries_costs, price


def test_the_reader_prices_ops_as_the_eager_profile_does_from_sizes_where_these_determine_the_work() -> None:
    """Matrix products, 3 x 3 convolutions with a bias and pointwise ops in single precision."""
    model = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 36, 32), nn.Tanh())
    graph = lt.read((model, torch.randn(4, 3, 6, 6)))
    assert carries_costs(graph)
    assert price(graph, "eager").seconds.tolist() == graph.cost.tolist()
    from_sizes = price(replace(graph, cost=np.ones(graph.n_ops)), "eager").seconds
    assert from_sizes.tolist() == pytest.approx(graph.cost.tolist())
