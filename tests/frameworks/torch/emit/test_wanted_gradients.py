"""A convolution's backward pass that runs twice computes every gradient once."""

from typing import Any

import torch

from lowtide.engine.plan import Free, Plan, Run, verify
from lowtide.frameworks.torch.emit.emit import emit
from lowtide.frameworks.torch.model import TorchModel
from lowtide.frameworks.torch.reading.lowering import lower

BACKWARD = torch.ops.aten.convolution_backward.default


def _gradients(gradient: torch.Tensor, image: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    of_image, of_weight, of_bias = BACKWARD(
        gradient, image, weight, [6], [1, 1], [1, 1], [1, 1], False, [0, 0], 1, [True, True, True]
    )
    return of_weight.square().sum() + of_image.exp().sum() + of_bias.sum()


def _inputs() -> tuple[torch.Tensor, ...]:
    torch.manual_seed(0)
    return torch.randn(3, 6, 8, 8), torch.randn(3, 5, 8, 8), torch.randn(6, 5, 3, 3)


def _masks(model: TorchModel, plan: Plan) -> list[Any]:
    """Return the requested gradients of every run of the backward pass."""
    module = model.captured.graph_module
    graph = emit(module, lower(module, model.captured.inputs), plan, boxed=False).graph
    return [node.args[10] for node in graph.find_nodes(op="call_function", target=BACKWARD)]


def test_a_second_run_is_for_what_is_read_of_it_alone_and_changes_no_bit(digest: Any) -> None:
    inputs = _inputs()
    model = TorchModel((_gradients, inputs))
    graph = model.graph
    (backward,) = (op for op in range(graph.n_ops) if "convolution_backward" in graph.op_kinds[op])
    (reader,) = (op for op in range(graph.n_ops) if "exp" in graph.op_kinds[op])
    of_image = next(
        int(buffer) for buffer in graph.reads[reader] if int(graph.structure.producers[int(buffer)]) == backward
    )
    steps: list[Any] = []
    for step in Plan.baseline(graph).steps():
        if step == Run(reader):
            steps += [Free(of_image), Run(backward)]
        steps.append(step)
    plan = Plan.from_steps(graph, steps)
    verify(graph, plan)
    assert _masks(model, plan) == [[False, True, False], [True, False, True]]
    assert digest(model.apply(plan)(*inputs)) == digest(_gradients(*inputs))


def test_a_single_run_computes_what_was_asked_for() -> None:
    model = TorchModel((_gradients, _inputs()))
    assert _masks(model, Plan.baseline(model.graph)) == [[True, True, True]]
