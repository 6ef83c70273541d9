"""PyTorch's own database of operators: no kernel allocates more than is predicted, unless it is listed."""

import warnings
from collections.abc import Iterator
from itertools import islice
from typing import Any

import pytest
import torch
from torch.fx import GraphModule, Node

from lowtide.core.errors import LowtideError
from lowtide.frameworks.torch.capture.capture import capture
from lowtide.frameworks.torch.internals import pytree
from lowtide.frameworks.torch.internals.allocators import cpu_peak_of
from lowtide.frameworks.torch.internals.nodes import map_arguments, value_of
from lowtide.frameworks.torch.internals.operators import is_view, overload_of
from lowtide.frameworks.torch.internals.tensors import storage_bytes, storage_key
from lowtide.frameworks.torch.reading.captured import attribute
from lowtide.frameworks.torch.reading.scratch import scratch_bytes
from lowtide.frameworks.torch.reading.scratch_reductions import kept_bytes
from lowtide.frameworks.torch.reading.workspaces import form_of, is_unmeasured, stand_in, workspace_of
from tests.frameworks.torch.reading.measured_scratch import one_thread

GROUPS = 64
SAMPLES = 3
DTYPES = (torch.float32, torch.bfloat16, torch.float16, torch.float64, torch.complex64)
SCALARS = 64
"""Tolerance for scalars, which are not modeled."""
SEEN: set[str] = set()
FAILS = (RuntimeError, ValueError, TypeError, IndexError, LowtideError)
"""Samples that cannot be captured, and kernels that refuse made-up numbers."""


def programs(op: Any, dtype: torch.dtype) -> Iterator[GraphModule]:
    """Yield the captured graphs of some samples, with the backward pass if there is one."""
    has_gradients = op.supports_autograd and dtype in op.supported_backward_dtypes("cpu")
    for sample in islice(op.sample_inputs("cpu", dtype, requires_grad=has_gradients), SAMPLES):

        def run(*args: Any, sample: Any = sample) -> Any:
            result = op.op(*args, **sample.kwargs)
            losses = [each for each in pytree.tensors_in(result) if each.requires_grad and each.is_floating_point()]
            return losses[0].sum() if losses else result

        try:
            yield capture((run, (sample.input, *sample.args))).graph_module
        except FAILS:
            continue


def predicted(node: Node) -> int:
    """Return what a kernel may allocate: its results, the storage that these keep, and its scratch."""
    found = workspace_of(node)
    fakes = {storage_key(tensor): storage_bytes(tensor) for tensor in pytree.tensors_in(value_of(node))}
    results = max(sum(fakes.values()), 0 if found is None else sum(found.result_bytes))
    return max(results, kept_bytes(node)) + scratch_bytes(node)


def calls(module: GraphModule) -> Iterator[tuple[Node, Any, Any]]:
    """Yield PyTorch's kernels that can run on made-up operands, each form once, with the operands."""
    for node in module.graph.nodes:
        overload = overload_of(node.target)
        if overload is None or overload.namespace != "aten" or is_view(overload):
            continue
        given = map_arguments(
            node, lambda each: attribute(module, str(each.target)) if each.op == "get_attr" else value_of(each)
        )
        key = f"{overload}{form_of(given)}"
        if key in SEEN:
            continue
        SEEN.add(key)
        args, kwargs = stand_in(given)
        try:
            overload(*args, **kwargs)
        except FAILS:
            continue
        yield node, args, kwargs


def allocated(node: Node, args: Any, kwargs: Any) -> int:
    """Return the most bytes that a kernel allocates at once, results included."""
    target: Any = node.target
    return cpu_peak_of(lambda: target(*args, **kwargs))[0]


@pytest.mark.share_of_cases(0.25)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("group", range(GROUPS))
def test_a_kernel_that_allocates_more_than_its_results_is_predicted_or_listed(group: int, dtype: torch.dtype) -> None:
    pytest.importorskip("expecttest")  # PyTorch's database needs it
    from torch.testing._internal.common_methods_invocations import op_db

    with warnings.catch_warnings(), one_thread():
        warnings.simplefilter("ignore")
        for op in (op for op in op_db[group::GROUPS] if op.supports_dtype(dtype, "cpu")):
            for module in programs(op, dtype):
                for node, args, kwargs in calls(module):
                    assert is_unmeasured(node) or allocated(node, args, kwargs) <= predicted(node) + SCALARS, node
