"""All compilations of a captured graph share one trace, and give what separate traces give."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._functorch._aot_autograd import graph_compile
from torch.fx import Graph, GraphModule
from torch.utils.checkpoint import checkpoint

from lowtide.frameworks.torch.compile.step_passes import GivenGraph
from lowtide.frameworks.torch.internals import joint_trace
from lowtide.frameworks.torch.internals.dynamo import copied
from lowtide.frameworks.torch.internals.inductor import compile_fx
from lowtide.frameworks.torch.internals.joint_trace import JointTrace, made_once
from lowtide.frameworks.torch.internals.nodes import copied_graph

pytestmark = [
    pytest.mark.usefixtures("quick_inductor"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::ResourceWarning"),
]


class Normalized(nn.Module):
    """A layer with dropout, running statistics that it overwrites, and a result that is a view."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.norm, self.dropout = nn.Linear(8, 8), nn.BatchNorm1d(8), nn.Dropout(0.5)

    def forward(self, value: Tensor) -> tuple[Tensor, Tensor]:
        value = self.dropout(self.norm(self.layer(value)).relu())
        return value.square().mean(), value.t()


class Checkpointed(nn.Module):
    """Two layers that the user checkpoints."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Sequential(nn.Linear(8, 8), nn.GELU()) for _ in range(2))

    def forward(self, value: Tensor) -> tuple[Tensor]:
        for layer in self.layers:
            value = checkpoint(layer, value, use_reentrant=False)
        return (value.square().mean(),)


@contextmanager
def _counting_traces(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[None]]:
    traced: list[None] = []
    trace: Any = graph_compile.aot_dispatch_autograd_graph

    def counted(*args: Any, **others: Any) -> Any:
        traced.append(None)
        return trace(*args, **others)

    with monkeypatch.context() as patched:
        patched.setattr(graph_compile, "aot_dispatch_autograd_graph", counted)
        yield traced


def _results(model: nn.Module, value: Tensor, backend: Callable[..., Any]) -> list[Tensor]:
    """Return results, gradients and buffers of one compiled step, from a fixed random state."""
    torch.manual_seed(0)
    outputs = torch.compile(model, backend=backend)(value)
    outputs[0].backward()
    return [*outputs, *(each.grad for each in model.parameters() if each.grad is not None), *model.buffers()]


def _compiled(times: int) -> Callable[[GraphModule, Sequence[Any]], Any]:
    """Return a backend that compiles a graph `times` times with one trace and runs the last result."""

    def backend(module: GraphModule, inputs: Sequence[Any]) -> Any:
        given = GivenGraph(module, inputs)
        runs = [compile_fx(copied(module), inputs, {}, trace=given.trace) for _ in range(times)]
        return runs[-1]

    return backend


@pytest.mark.parametrize("kind", [Normalized, Checkpointed])
@pytest.mark.parametrize("dynamic", [False, True])
def test_a_graph_compiled_with_a_shared_trace_gives_the_same_bits(
    kind: type[nn.Module], dynamic: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[list[Tensor]] = []
    for times in (1, 3):
        torch._dynamo.reset()
        torch.manual_seed(1)
        model, value = kind(), torch.randn(4, 8)
        if dynamic:
            torch._dynamo.mark_dynamic(value, 0)
        with _counting_traces(monkeypatch) as traced, torch._functorch.config.patch(enable_autograd_cache=False):
            found.append(_results(model, value, _compiled(times)))
        assert len(traced) == 1, times
    for alone, shared in zip(*found, strict=True):
        assert alone.equal(shared)


def test_a_budget_traces_a_program_once(monkeypatch: pytest.MonkeyPatch) -> None:
    layers = [nn.Sequential(nn.Linear(64, 64), nn.GELU(), nn.LayerNorm(64)) for _ in range(4)]
    model, value = nn.Sequential(*layers), torch.randn(64, 64)
    with _counting_traces(monkeypatch) as traced:
        torch.compile(model, backend="lowtide", options={"budget": "80%"})(value).sum().backward()
    assert len(traced) == 1


def _doubled() -> list[GraphModule]:
    graph = Graph()
    value = graph.placeholder("value")
    graph.output(graph.call_function(torch.add, (value, value)))
    return [GraphModule({}, graph)]


def test_programs_made_once_are_copies_that_share_no_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    trace = JointTrace()
    monkeypatch.setattr(trace, "_made", object())
    monkeypatch.setattr(joint_trace, "_in_use", [trace])
    (first,), (second,) = made_once("key", _doubled), made_once("key", lambda: pytest.fail("made twice"))
    next(node for node in first.graph.nodes if node.op == "call_function").target = torch.mul
    (third,) = made_once("key", _doubled)
    assert [module(torch.tensor(3)).item() for module in map(copied_graph, (second, third))] == [6, 6]


def test_without_a_shared_trace_programs_are_made_each_time() -> None:
    assert made_once("key", _doubled)[0] is not made_once("key", _doubled)[0]
