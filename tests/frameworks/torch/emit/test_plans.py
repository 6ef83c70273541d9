"""Emitted plans recompute ops, use in-place pairs, and keep no tensor alive."""

from typing import Any

import pytest
import torch
from torch import nn

import lowtide.torch as lt
from lowtide.engine.analysis import simulate
from lowtide.engine.plan import Free, Plan, Run
from lowtide.frameworks.torch.reading.in_place import by_rows

N = 256
ONE = N * N * 4
"""Bytes of one matrix of N by N."""


def test_a_second_run_of_an_op_is_carried_out_and_measured(digest: Any) -> None:
    """The first result is freed, and its views are created again."""

    def function(x: torch.Tensor) -> torch.Tensor:
        a = x.exp()
        b = a.t() @ x
        c = (b @ b).sum(0, keepdim=True)
        return a[:1] * c

    inputs = (torch.randn(N, N) / N,)
    captured = lt.capture((function, inputs))
    graph = lt.read(captured)
    ops = {kind: op for op, kind in enumerate(graph.op_kinds)}
    first, product, second, total, last = 0, 1, 2, ops["aten.sum"], ops["aten.mul"]
    written = [graph.writes[op].tolist()[0] for op in range(graph.n_ops)]
    plan = Plan.from_steps(
        graph,
        [
            Run(first),
            Run(product),
            Free(written[first]),
            Run(second),
            Free(written[product]),
            Run(total),
            Free(written[second]),
            Run(first),
            Run(last),
        ],
    )
    predicted = simulate(graph, plan).peak_bytes["cpu"]
    assert predicted < simulate(graph, Plan.baseline(graph)).peak_bytes["cpu"]
    applied = lt.apply(plan, captured)
    assert digest(applied(*inputs)) == digest(function(*inputs))
    assert abs(lt.measure_captured(captured, applied).peak_bytes - predicted) <= 4096


@pytest.mark.parametrize(
    ("name", "function", "offered"),
    [
        ("addition", lambda x: (x @ x) + (x.t() @ x), 2),
        ("a scalar", lambda x: (x @ x) * 2 + 1, 2),
        ("backward of an activation", lambda x: torch.ops.aten.gelu_backward(x @ x, x), 1),
        ("a mask", lambda x: (x @ x).masked_fill(x > 0, 1.0), 1),
        ("a transposed reader of the same storage", lambda x: (lambda y: y + y.t())(x @ x), 0),
        ("a broadcast operand", lambda x: (x @ x[:, :1]) + x.sum(), 1),
        ("another type", lambda x: (x @ x) > 0, 0),
        ("an input", lambda x: x + 1, 0),
        ("a part of a larger storage", lambda x: (x @ x)[:4] + 1, 0),
        ("a softmax", lambda x: torch.softmax(x @ x, 1), 1),
        ("backward of a softmax", lambda x: torch.ops.aten._softmax_backward_data(x @ x, x, 1, x.dtype), 1),
        ("a transposed gradient", lambda x: torch.ops.aten._log_softmax_backward_data((x @ x).t(), x, 1, x.dtype), 0),
        ("a running sum", lambda x: torch.cumsum(x @ x, 1), 0),
    ],
)
def test_in_place_pairs_are_offered_where_results_stay_equal(name: str, function: Any, offered: int) -> None:
    graph = lt.read((function, (torch.randn(8, 8),)))
    assert sum(len(flat) // 2 for flat in graph.in_place) == offered, name


@pytest.mark.parametrize("name", ["_softmax", "_log_softmax"])
def test_rows_are_overwritten_with_the_same_numbers_whatever_their_strides(name: str) -> None:
    """PyTorch's kernels return wrong numbers for tensors that are not contiguous."""
    plain = getattr(torch.ops.aten, name).default
    form = by_rows(plain, getattr(torch.ops.aten, name).out, "out")
    for rows in (torch.randn(4, 6), torch.randn(6, 4).t()):
        expected = plain(rows, 1, False)
        assert torch.equal(form(rows, 1, False, into=rows), expected)
        assert torch.equal(rows, expected)


def test_constructors_that_look_at_the_form_of_a_tensor_do_not_read_it() -> None:
    def function(x: torch.Tensor) -> list[torch.Tensor]:
        y = (x @ x).t()
        return [torch.ones_like(y), y.new_zeros(3), torch.full_like(y, 2.0), torch.zeros_like(y), x.sum()]

    captured = lt.capture((function, (torch.randn(8, 8),)))
    graph = lt.read(captured)
    product = graph.op_kinds.index("aten.mm") if "aten.mm" in graph.op_kinds else -1
    assert product == -1 or not graph.structure.successors[product].size
    results = lt.apply(Plan.baseline(graph), captured)(torch.randn(8, 8))
    assert [result.stride() for result in results] == [result.stride() for result in function(torch.randn(8, 8))]


SCRATCH = {
    "convolution": lambda: (nn.Conv2d(32, 64, 3, padding=1), torch.randn(4, 32, 32, 32)),
    "channels last": lambda: (
        nn.Conv2d(32, 64, 3).to(memory_format=torch.channels_last),
        torch.randn(4, 32, 32, 32).to(memory_format=torch.channels_last),
    ),
    "double precision": lambda: (nn.Conv2d(16, 32, 3).double(), torch.randn(2, 16, 24, 24).double()),
    "transposed": lambda: (nn.ConvTranspose2d(32, 32, 2, 2), torch.randn(4, 32, 16, 16)),
    "strided matrix": lambda: (lambda x: x[:, ::2] @ x[:, 1:65], torch.randn(128, 256)),
    "mixed types": lambda: (lambda x: x * x.double(), torch.randn(N, N)),
    "normalization of a transposed input": lambda: (nn.LayerNorm(N), torch.randn(N, N).t()),
}


@pytest.mark.parametrize("name", SCRATCH)
def test_scratch_of_kernels_is_predicted(name: str) -> None:
    """The graph predicts the memory of a program of one kernel, except buffers per thread."""
    function, x = SCRATCH[name]()
    captured = lt.capture((function, (x,)))
    graph = lt.read(captured)
    plan = Plan.baseline(graph)
    predicted = simulate(graph, plan).peak_bytes["cpu"]
    measured = lt.measure_captured(captured, lt.apply(plan, captured)).peak_bytes
    assert int(graph.scratch.max()) > 0
    assert abs(measured - predicted) <= 0.03 * measured
