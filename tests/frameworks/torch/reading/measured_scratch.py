"""The measured scratch of a kernel, from allocation events, and the modeled scratch."""

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.fx import Graph, Node
from torch.utils import _pytree as pytree

from lowtide.frameworks.torch.measure.allocation_events import peak_of_call
from lowtide.frameworks.torch.reading.scratch import scratch_bytes

SCALARS = 256
"""Tolerance for scalars and rows of indices, which are not modeled."""


@contextmanager
def one_thread() -> Iterator[None]:
    """Run kernels on one thread, as the model assumes."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def measured_scratch(call: Callable[[], Any]) -> int:
    """Return the peak bytes allocated during a call, minus its results, with warm caches."""
    with torch.no_grad(), one_thread():
        call()
        gc.freeze()  # else the garbage collection before measuring would dominate
        try:
            peak, result = peak_of_call(call, torch.device("cpu"))
        finally:
            gc.unfreeze()
    return peak - sum(storage_sizes(result).values())


def storage_sizes(results: Any) -> dict[int, int]:
    """Return the bytes of every storage in nested results."""
    storages = [leaf.untyped_storage() for leaf in pytree.tree_leaves(results) if isinstance(leaf, torch.Tensor)]
    return {storage.data_ptr(): storage.nbytes() for storage in storages if storage.nbytes()}


def modeled_scratch(target: Any, *args: Any) -> int:
    """Return the modeled scratch of a call."""
    with one_thread():
        return scratch_bytes(node_of(target, *args))


def node_of(target: Any, *args: Any) -> Node:
    """Return a call as a node with values for arguments and result."""
    graph = Graph()

    def placeholder(tensor: torch.Tensor) -> Node:
        node = graph.placeholder("x")
        node.meta["val"] = tensor
        return node

    node = graph.call_function(target, pytree.tree_map_only(torch.Tensor, placeholder, args))
    with torch.no_grad():
        node.meta["val"] = target(*args)
    return node
