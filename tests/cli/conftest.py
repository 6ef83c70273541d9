"""The command line as tests call it, and one model of every kind it takes."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from lowtide.caffe2 import NetDef, OperatorDef, write_net
from lowtide.cli import main
from lowtide.engine.graph import GraphBuilder, Lifetime, write_graph_file

SCHEMAS = Path(__file__).parents[2] / "docs" / "schemas" / "json"
PROGRAMS = """
import torch
from lowtide.torch import TrainingStep

def train():
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 64))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    return TrainingStep(model, lambda model, x: model(x).pow(2).mean(), optimizer), (torch.ones(8, 64),)

def half_precision():
    torch.manual_seed(0)
    tokens = torch.randint(0, 1031, (512,))
    model = torch.nn.Embedding(1031, 64, dtype=torch.bfloat16)

    def loss(model, tokens):
        logits = torch.tanh(model(tokens)) @ model.weight.T
        return torch.nn.functional.cross_entropy(logits, tokens.roll(1))

    return TrainingStep(model, loss, torch.optim.SGD(model.parameters(), lr=10.0)), (tokens,)

def deep():
    torch.manual_seed(0)
    layers = [layer for _ in range(12) for layer in (torch.nn.Linear(32, 32), torch.nn.ReLU())]
    model = torch.nn.Sequential(*layers)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return TrainingStep(model, lambda model, x: model(x).pow(2).mean(), optimizer), (torch.ones(2048, 32),)

def infer():
    print("a program may print while it is read")
    return torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU()), (torch.ones(2, 4),)

not_callable = 42

def raises():
    raise ValueError("two\\nlines")

def leaves():
    raise SystemExit(7)

def nonsense():
    return 42

def nothing():
    return None

def name():
    return "small_programs:name"

def half():
    return (torch.nn.ReLU(),)

def numbers():
    return (1, 2)

def no_tensors():
    return torch.nn.ReLU(), ("text",)

def wrong_shape():
    return torch.nn.Linear(4, 4), (torch.ones(3, 3),)
"""


@dataclass(frozen=True)
class Finished:
    """What a command left behind."""

    code: int
    stdout: str
    stderr: str

    @property
    def complaints(self) -> list[str]:
        """Lines on stderr that are no progress."""
        return [line for line in self.stderr.splitlines() if not line.endswith(" ...")]


Command = Callable[..., Finished]


@pytest.fixture
def lowtide(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    """Run the command line's entry point in this process; what it prints as JSON is held against its schema."""

    def run(*arguments: object) -> Finished:
        monkeypatch.setattr(sys, "argv", ["lowtide", *map(str, arguments)])
        with pytest.raises(SystemExit) as caught:
            main()
        code = caught.value.code
        captured = capsys.readouterr()
        assert isinstance(code, int)
        if "--json" in arguments and captured.out:
            check_json(json.loads(captured.out))
        return Finished(code, captured.out, captured.err)

    return run


def check_json(printed: dict[str, Any]) -> None:
    """Hold what `--json` printed against the published schema of its kind, which names all fields of the object."""
    schema = json.loads((SCHEMAS / f"{printed['kind']}.schema.json").read_text(encoding="utf-8"))
    jsonschema.validate(printed, schema)
    assert printed.keys() <= schema["$defs"][schema["$ref"].rpartition("/")[2]]["properties"].keys()


@pytest.fixture
def lowtide_process() -> Command:
    """Run the installed command in a process of its own."""

    def run(*arguments: object, **environment: str) -> Finished:
        command = [str(Path(sys.executable).with_name("lowtide")), *map(str, arguments)]
        settings = {**os.environ, **environment}
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=settings)
        return Finished(done.returncode, done.stdout, done.stderr)

    return run


@pytest.fixture
def graph_file(tmp_path: Path) -> Path:
    """Two branches that grow and shrink: 2210 bytes as they stand, 1211 one after the other; optimal."""
    builder = GraphBuilder("diamond")
    weight = builder.add_buffer("weight", 5000, Lifetime.PERSISTENT)
    x = builder.add_buffer("x", 10, Lifetime.INPUT)
    big = [builder.add_buffer(f"big{k}", 1000 + 100 * k) for k in range(2)]
    small = [builder.add_buffer(f"small{k}", 100 + k) for k in range(2)]
    out = builder.add_buffer("out", 10, Lifetime.OUTPUT)
    for k in range(2):
        builder.add_op(f"grow{k}", "grow", reads=[x, weight], writes=[big[k]])
    for k in range(2):
        builder.add_op(f"shrink{k}", "sum", reads=[big[k]], writes=[small[k]], cost=0.5)
    builder.add_op("join", "add", reads=small, writes=[out])
    builder.note("nothing is known about the weather")
    path = tmp_path / "diamond.graph.json"
    write_graph_file(builder.build(), path)
    return path


@pytest.fixture
def onnx_file(tmp_path: Path) -> Path:
    """The same shape of program for ONNX, with a dynamic dimension "batch"."""
    from onnx import TensorProto, helper, save_model  # most tests that share this file need no framework

    def tensor(name: str) -> object:
        return helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", 16])

    nodes = [
        *(helper.make_node("Concat", ["x", "x", "x", "x"], [f"big{k}"], axis=1) for k in range(2)),
        *(helper.make_node("ReduceSum", [f"big{k}", "axis"], [f"small{k}"]) for k in range(2)),
        helper.make_node("Sub", ["small0", "small1"], ["difference"]),
        helper.make_node("Add", ["difference", "x"], ["out"]),
    ]
    axis = helper.make_tensor("axis", TensorProto.INT64, [1], [1])
    graph = helper.make_graph(nodes, "branches", [tensor("x")], [tensor("out")], [axis])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    path = tmp_path / "branches.onnx"
    save_model(model, path)
    return path


@pytest.fixture
def netdef_file(tmp_path: Path) -> Path:
    """The same shape of program for Caffe2, with the shapes of what it reads beside it."""
    ops = [
        *(OperatorDef(type="Concat", input=["x"] * 4, output=[f"big{k}", f"n{k}"]) for k in range(2)),
        *(OperatorDef(type="SumElements", input=[f"big{k}"], output=[f"small{k}"]) for k in range(2)),
        OperatorDef(type="Sub", input=["small0", "small1"], output=["out"]),
    ]
    net = NetDef(name="branches", op=ops, external_input=["x"], external_output=["out"])
    path = tmp_path / "branches.pb"
    path.write_bytes(write_net(net, path.name))
    (tmp_path / "branches.value_info.json").write_text('{"x": [1, [4, 16]]}')
    return path


@pytest.fixture
def inductor_export_file() -> Path:
    """An export of Inductor, whose name ends as those of other JSON files do."""
    return Path(__file__).parents[1] / "frameworks" / "inductor_export" / "foo.json"


@pytest.fixture
def hlo_file() -> Path:
    """An HLO module with a loop in a loop, as XLA's compiler is given it."""
    return Path(__file__).parents[1] / "frameworks" / "xla" / "modules" / "nested.before.hlo"


@pytest.fixture
def interfaces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A module in the working directory that makes a GraphInterface; returns its name."""
    return _module(
        tmp_path,
        monkeypatch,
        "small_interfaces",
        "from tests.contracts.frameworks import ENTRIES\n"
        "def interface(): return next(e for e in ENTRIES if e.name == 'mesh_tensorflow').make(64)\n",
    )


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A module of small PyTorch programs in the working directory; returns its name."""
    return _module(tmp_path, monkeypatch, "small_programs", PROGRAMS)


def _module(folder: Path, monkeypatch: pytest.MonkeyPatch, name: str, text: str) -> str:
    """Write a module into a folder, which becomes the working directory; returns its name."""
    (folder / f"{name}.py").write_text(text)
    monkeypatch.chdir(folder)
    monkeypatch.delitem(sys.modules, name, raising=False)
    return name


@pytest.fixture(scope="session")
def exported_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A .pt2 file."""
    import torch

    path = tmp_path_factory.mktemp("exported") / "small.pt2"
    program = torch.nn.Sequential(torch.nn.Linear(8, 32), torch.nn.ReLU(), torch.nn.Linear(32, 8))
    torch.export.save(torch.export.export(program, (torch.ones(4, 8),)), path)
    return path
