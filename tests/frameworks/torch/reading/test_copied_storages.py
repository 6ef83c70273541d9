"""Ops that copy the storage of a view: their results are planned with the bytes that PyTorch allocates."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

import lowtide.torch as lt
from lowtide.frameworks.torch.capture.capture_function import capture_function
from lowtide.frameworks.torch.reading.lowering import lower

aten = torch.ops.aten
Copy = Callable[[torch.Tensor], torch.Tensor]
ROWS, SIZE = 8, 16

COPIES: dict[str, Copy] = {
    "copy": lambda view: aten.copy(view, torch.ones(view.shape)),
    "copy of one value": lambda view: aten.copy(view, torch.ones(1, dtype=torch.float64)),
    "slice_scatter": lambda view: aten.slice_scatter(view, torch.ones_like(view[:1]), 0, 0, 1),
    "select_scatter": lambda view: aten.select_scatter(view, torch.ones_like(view[0]), 0, 0),
    "diagonal_scatter": lambda view: aten.diagonal_scatter(view, torch.ones_like(view.diagonal())),
    "as_strided_scatter": lambda view: aten.as_strided_scatter(view, torch.ones(1), (1,), (1,)),
}
VIEWS: dict[str, Copy] = {
    "the whole": lambda whole: whole,
    "rows": lambda whole: whole[2:4],
    "columns": lambda whole: whole[:, 3:5],
    "transposed": lambda whole: whole.t()[3:],
    "expanded": lambda whole: whole[:1].expand(ROWS, SIZE),
}


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("copy", COPIES)
def test_a_copy_of_a_view_is_planned_with_its_storage(copy: str, view: str) -> None:
    def run(given: torch.Tensor) -> torch.Tensor:
        return COPIES[copy](VIEWS[view](given.sin()))

    given = torch.randn(ROWS, SIZE)
    captured = capture_function(run, (given,), {})
    lowered = lower(captured.graph_module, captured.inputs)
    (output,) = captured.graph_module.graph.find_nodes(op="output")
    (buffer,) = lowered.buffers_of[output.all_input_nodes[0]]
    (ran,) = captured.graph_module([given])
    assert lowered.buffers[buffer].size_bytes == ran.untyped_storage().nbytes()
    assert torch.equal(ran, run(given))
    assert ran.stride() == run(given).stride()


def test_a_loop_over_rows_peaks_where_it_is_predicted() -> None:
    """Each turn writes into slices of its results, which a compiled graph does by copies."""

    def loop(rows: torch.Tensor, weight: torch.Tensor) -> Any:
        made, summed = torch.empty_like(rows), torch.zeros_like(weight)
        for start in range(0, len(rows), 128):
            scores = torch.exp(rows[start : start + 128] @ weight.T)
            made[start : start + 128] = scores @ weight
            summed += scores.T @ rows[start : start + 128]
        return made, summed

    batch = torch.randn(512, 32) / 8, torch.randn(300, 32) / 8
    for budget in ("100%", "80%"):
        torch._dynamo.reset()
        compiled = torch.compile(loop, backend="lowtide", options={"compiler": "eager", "budget": budget})
        with torch.no_grad():
            measured = lt.measure(compiled, *batch, timed_calls=1)
        assert measured.measured_over_predicted == pytest.approx(1, abs=0.02)
    torch._dynamo.reset()
