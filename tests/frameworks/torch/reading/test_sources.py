"""Forward and backward ops have source modules and lines of the user's program."""

import inspect

import pytest
import torch
from torch import nn

import lowtide
import lowtide.torch as lt
from lowtide.core.errors import UnsupportedError


class Mlp(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.act, self.down = nn.Linear(8, 32), nn.GELU(), nn.Linear(32, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        wide = self.up(x)
        return self.down(self.act(wide))


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Mlp() for _ in range(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = x + block(x)
        return x


def _line(text: str) -> int:
    lines, first = inspect.getsourcelines(Mlp)
    return first + next(place for place, line in enumerate(lines) if text in line)


def _sources(graph: lowtide.Graph) -> dict[str, str | None]:
    return dict(zip(graph.op_names, graph.sources, strict=True))


def test_forward_and_backward_ops_of_a_training_step_have_sources() -> None:
    model = Net()
    step = lt.TrainingStep(model, lambda model, x: model(x).sum(), torch.optim.SGD(model.parameters(), 0.1))
    graph = lowtide.read((step, (torch.randn(16, 8),)))
    found, act = _sources(graph), f"test_sources.py:{_line('self.act(wide)')}"
    assert [found[name] for name in ("gelu", "gelu_1", "gelu_2")] == [f"blocks.{k}.act at {act}" for k in range(3)]
    assert sorted(str(found[name]) for name in ("gelu_backward", "gelu_backward_1", "gelu_backward_2")) == [
        f"blocks.{k}.act at {act}" for k in range(3)
    ]
    assert found["addmm"] == f"blocks.0.up at test_sources.py:{_line('self.up(x)')}"


def test_ops_of_a_compiled_model_have_sources() -> None:
    torch.compiler.reset()
    torch.compile(Net(), backend="lowtide", options={"compiler": "eager"})(torch.randn(16, 8)).sum().backward()
    graph = lt.explain().programs[-1]
    line = f"test_sources.py:{_line('self.act(wide)')}"
    sources = [str(each.made_at) for each in graph.unmodified[0].holders if each.op_kind == "aten.gelu"]
    assert sorted(sources) == [f"blocks.{k}.act at {line}" for k in range(len(sources))]
    assert len(sources) > 1
    row = f"gelu x {len(sources)}  (aten.gelu)\n{'':12}blocks.*.act\n{'':12}{__file__}:{_line('self.act(wide)')}"
    assert row in str(graph)


def test_sources_are_kept_in_files_and_with_hosts_and_change_no_fingerprint(tmp_path) -> None:
    graph = lowtide.read((Net(), (torch.randn(16, 8),)))
    lowtide.write_graph_file(graph, tmp_path / "net.graph.json")
    assert list(lowtide.read(tmp_path / "net.graph.json").sources) == list(graph.sources)
    assert list(lowtide.engine.offload.Host(bandwidth_bytes_per_s=1e9).added_to(graph).sources) == list(graph.sources)
    builder = lowtide.GraphBuilder(graph.name)
    builder.copy_storage(graph)
    for op in graph.ops():
        builder.add_op(**{name: getattr(op, name) for name in op.__struct_fields__ if name != "source"})
    assert builder.build().fingerprint == graph.fingerprint


def test_explain_without_arguments_finds_a_training_step() -> None:
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    step = lt.training_step(model, lambda model, x: model(x).sum(), optimizer, torch.randn(16, 8))
    assert lt.explain().programs[-1].name == lt.explain(step).programs[0].name
    assert "blocks.*.act" in str(lt.explain().programs[-1])


class Broken(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x @ x


class Branching(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x if x.sum() > 0 else -x


@pytest.mark.parametrize("model", [Broken(), Branching()])
def test_the_error_of_a_failed_capture_has_its_line(model: nn.Module, capfd: pytest.CaptureFixture[str]) -> None:
    """Inside other modules, it also has the innermost module's path. PyTorch's traceback is not shown."""
    line = inspect.getsourcelines(type(model))[1] + 2
    with pytest.raises(UnsupportedError, match=f"at test_sources.py:{line}"):
        lowtide.read((model, (torch.randn(2, 3),)))
    with pytest.raises(UnsupportedError, match=f" in 1.0 at test_sources.py:{line}"):
        lowtide.read((nn.Sequential(nn.GELU(), nn.Sequential(model)), (torch.randn(2, 3),)))
    assert "Traceback" not in capfd.readouterr().err
