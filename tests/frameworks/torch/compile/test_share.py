"""A graph that runs beside others: what is left to it between its two passes, and while it runs."""

import pytest
import torch
from torch._functorch.aot_autograd import aot_function
from torch.nn import functional

from lowtide.frameworks.torch.compile.eager import run_boxed
from lowtide.frameworks.torch.compile.partitioner import Partitioner
from lowtide.frameworks.torch.planning.options import Options
from lowtide.frameworks.torch.planning.plan_program import Share
from lowtide.frameworks.torch.planning.programs import planned_programs


def _layers(value: torch.Tensor, *weights: torch.Tensor) -> torch.Tensor:
    for weight in weights:
        value = functional.gelu(value @ weight)
    return value


def _planned_peak(share: Share | None) -> int:
    """Return the planned peak of a stack of layers within a share of a budget."""
    options = Options(compiler="eager", budget=None if share is None else share.allowed)
    partition = Partitioner(options, share=share, name="stack")
    run = aot_function(_layers, fw_compiler=run_boxed, bw_compiler=run_boxed, partition_fn=partition)
    weights = [torch.randn(16, 16, requires_grad=True) for _ in range(6)]
    run(torch.randn(256, 16), *weights).sum().backward()
    return next(iter(planned_programs()[-1].result.peak_bytes.values()))


@pytest.mark.filterwarnings("ignore:lowtide. stack misses its budget")
def test_what_others_need_between_the_passes_leaves_the_rest_within_the_share() -> None:
    """Others need more than the whole share there, which no plan changes; the graph itself keeps to it."""
    allowed = _planned_peak(None) * 6 // 10
    assert _planned_peak(Share(allowed, others=2 * allowed)) <= allowed
