"""What the PyTorch tests share: random valid orders, and the state a program leaves behind."""

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from random import Random
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils import _pytree as pytree

from lowtide.engine.analysis import Problem, simulate
from lowtide.engine.graph import Graph
from lowtide.engine.plan import Plan
from tests.frameworks.torch.reading.measured_scratch import one_thread
from tests.oracles.random_plans import random_order


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """Tests run side by side; the threads of small kernels would only wait for one another."""
    with one_thread():
        yield


@pytest.fixture
def quick_inductor() -> Iterator[None]:
    """Inductor compiles here, anew, without vectors, kernels together: the same programs in the same memory, sooner.

    The folder of compiled kernels is shared by all tests, so that its headers are compiled once.
    """
    from torch._inductor import config  # costs seconds, and most tests need none of it

    from tests.frameworks.torch.kernels_together import kernels_compiled_together

    torch._dynamo.reset()
    quick = config.patch({"compile_threads": 1, "fx_graph_cache": False, "cpp.simdlen": 1})
    with quick, kernels_compiled_together():
        yield
    torch._dynamo.reset()


@pytest.fixture
def quick_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep PyTorch's operators from reading the source of every frame for a unit test, for each sample."""
    from torch.testing._internal import common_utils
    from torch.testing._internal.opinfo import core

    for module in (common_utils, core):
        monkeypatch.setattr(module, "extract_test_fn", lambda: None)


def digest_of(values: Any) -> str:
    """Digest the bits of all tensors in nested values."""
    digest = hashlib.sha256()
    for leaf in pytree.tree_leaves(values):
        if isinstance(leaf, torch.Tensor):
            digest.update(repr((leaf.dtype, tuple(leaf.shape))).encode())
            digest.update(leaf.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
        else:
            digest.update(repr(leaf).encode())
    return digest.hexdigest()


@pytest.fixture(name="plans_of")
def plans_fixture() -> Callable[[Graph], list[Plan]]:
    """Give plans of a graph: its own order, and random orders with every in-place pair that fits."""

    def plans_of(graph: Graph, n_random: int = 2) -> list[Plan]:
        callees = {name: Plan.baseline(callee) for name, callee in graph.subgraphs.items()}
        peaks = {name: simulate(graph.subgraphs[name], plan).peak_bytes for name, plan in callees.items()}
        problem = Problem(graph, {name: replace(plan, peak_bytes=peaks[name]) for name, plan in callees.items()})
        return [
            Plan.baseline(graph),
            *(problem.plan(np.asarray(random_order(graph, Random(seed)), np.int32)) for seed in range(n_random)),
        ]

    return plans_of


@pytest.fixture(name="digest")
def digest_fixture() -> Callable[[Any], str]:
    """Give the function that digests the bits of tensors."""
    return digest_of
