"""An untrusted .pt2 file runs no code."""

import io
import json
import pickle
import warnings
import zipfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from lowtide import minimize, read
from lowtide.core.errors import InputError, UnsupportedError
from lowtide.frameworks.torch.capture.exported_file import load_exported
from lowtide.frameworks.torch.model import TorchModel

MARKER = "it_ran"
TOUCH = f"__import__('pathlib').Path('{MARKER}').touch()"
Members = dict[str, bytes]
Doctor = Callable[[Members], None]


class Touches:
    """An object that runs code when it is unpickled."""

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (Path(MARKER),)


class Small(nn.Module):
    """A dynamic size, a branch, a keyword argument and nested results."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)
        self.register_buffer("shift", torch.ones(8))

    def forward(self, x: torch.Tensor, *, pair: tuple[torch.Tensor, float]) -> dict[str, Any]:
        y = self.linear(x) * pair[1] + self.shift + pair[0]
        z = torch.cond(x.sum() > 0, lambda t: t.sin(), lambda t: t.cos(), (x,))
        return {"a/b": y.reshape(y.shape[0] * 2, -1), "rest": [z, y.shape[0] // 2]}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Members:
    """Return the members of a valid archive by name."""
    path = tmp_path_factory.mktemp("whole") / "small.pt2"
    rows = torch.export.Dim("rows", min=2, max=64)
    program = torch.export.export(
        Small(),
        (torch.ones(4, 8),),
        {"pair": (torch.ones(8), 2.0)},
        dynamic_shapes={"x": {0: rows}, "pair": (None, None)},
    )
    torch.export.save(program, path)
    with zipfile.ZipFile(path) as archive:
        return {info.filename: archive.read(info) for info in archive.infolist()}


def _written(members: Members, path: Path) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return path


def _named(members: Members, end: str) -> str:
    return next(name for name in members if name.endswith(end))


def _root(members: Members) -> str:
    return _named(members, "archive_version").removesuffix("archive_version")


def _in_program(change: Callable[[dict[str, Any]], None]) -> Doctor:
    """Change the JSON of the program."""

    def doctor(members: Members) -> None:
        name = _named(members, "models/model.json")
        program = json.loads(members[name])
        change(program)
        members[name] = json.dumps(program).encode()

    return doctor


def _replaced(old: str, new: str) -> Doctor:
    def doctor(members: Members) -> None:
        name = _named(members, "models/model.json")
        text = members[name].decode()
        assert old in text
        members[name] = text.replace(old, json.dumps(new)[1:-1]).encode()

    return doctor


def _pickled(end: str) -> Doctor:
    def doctor(members: Members) -> None:
        file = io.BytesIO()
        torch.save(((Touches(),), {}), file)
        members[_named(members, end)] = file.getvalue()

    return doctor


def _pickled_weight(members: Members) -> None:
    name = _named(members, "weights_config.json")
    config = json.loads(members[name])
    first = next(iter(config["config"].values()))
    first["use_pickle"] = True
    members[name] = json.dumps(config).encode()
    _pickled(first["path_name"])(members)


def _pickled_object(members: Members) -> None:
    name = _named(members, "constants_config.json")
    meta = {"path_name": "opaque_obj_0", "is_param": False, "use_pickle": True, "tensor_meta": None}
    members[name] = json.dumps({"config": {"thing": meta}}).encode()
    members[f"{_root(members)}data/constants/opaque_obj_0"] = pickle.dumps(Touches())


def _pickled_object_called_metadata(members: Members) -> None:
    """Only text is free under "metadata"."""
    _pickled_object(members)
    name = _named(members, "constants_config.json")
    members[name] = members[name].replace(b'"thing"', b'"metadata"')


def _size_called_metadata(members: Members) -> None:
    """A program value may be named "metadata"."""
    name = _named(members, "models/model.json")
    members[name] = members[name].replace(b'"x"', b'"metadata"')
    _replaced("Symbol('s", f"{TOUCH} or Symbol('s")(members)


def _older_weights(members: Members) -> None:
    file = io.BytesIO()
    torch.save({}, file)
    members[f"{_root(members)}data/weights/model.pt"] = file.getvalue()


def _compiled_model(members: Members) -> None:
    members[f"{_root(members)}data/aotinductor/model/model.so"] = b"\x7fELF"


def _guard(program: dict[str, Any]) -> None:
    program["guards_code"] = [f"{TOUCH} is None"]


def _input_name(program: dict[str, Any]) -> None:
    text = json.dumps(program).replace('"name": "x"', f'"name": "x={TOUCH}"')
    program.update(json.loads(text))


def _enumeration(program: dict[str, Any]) -> None:
    signature = program["graph_module"]["module_call_graph"][0]["signature"]
    context = json.dumps({"__enum__": True, "fqn": "antigravity:x", "name": "y"})
    signature["in_spec"] = signature["in_spec"].replace('"null"', json.dumps(context), 1)


_PICKLED_INPUTS = _pickled("sample_inputs/model.pt")
RUNS: dict[str, Doctor] = {
    "a pickled weight": _pickled_weight,
    "a pickled constant": _pickled_object,
    "a pickled constant called metadata": _pickled_object_called_metadata,
    "a size": _replaced("Symbol('s", f"{TOUCH} or Symbol('s"),
}
"""Code that a trusting load really runs."""
REFUSED: dict[str, Doctor] = RUNS | {
    "a size of a value called metadata": _size_called_metadata,
    "weights as older versions pickled them": _older_weights,
    "a compiled model": _compiled_model,
    "a size by attributes": _replaced("Symbol('s", "Symbol.__subclasses__()[0]('s"),
    "a size by another function": _replaced("Symbol('s", "lambdify('s"),
    "a function of the system": _replaced("torch.ops.aten.sin.default", "torch.os.system"),
    "a library": _replaced("torch.ops.aten.sin.default", "torch.ops.load_library"),
    "a private attribute": _replaced("torch.ops.aten.sin.default", "torch.ops.aten.__class__.mro"),
    "a caller": _replaced("torch.ops.aten.sin.default", "_operator.methodcaller"),
    "a guard": _in_program(_guard),
    "the name of an input": _in_program(_input_name),
    "the name of a keyword": _replaced("pair", f"pair={TOUCH}"),
    "an enumeration": _in_program(_enumeration),
}


@pytest.fixture
def doctored(whole: Members, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[Doctor | None], Path]:
    """Write the archive into the working directory, changed or not."""
    monkeypatch.chdir(tmp_path)

    def make(doctor: Doctor | None) -> Path:
        members = dict(whole)
        if doctor is not None:
            doctor(members)
        return _written(members, tmp_path / "small.pt2")

    return make


@pytest.fixture
def no_pickle(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fail if anything is unpickled."""

    def refuse(*_: object, **__: object) -> None:
        pytest.fail("something was unpickled")

    for module, name in ((torch, "load"), (pickle, "load"), (pickle, "loads"), (torch._C, "_pickle_load_obj")):
        monkeypatch.setattr(module, name, refuse)


def test_data_alone_needs_no_trust_and_gives_the_same_graph(doctored: Callable[[Doctor | None], Path]) -> None:
    path = doctored(None)
    assert read(path).fingerprint == read(path, trust=True).fingerprint


@pytest.mark.usefixtures("no_pickle")
def test_nothing_is_unpickled_to_plan(doctored: Callable[[Doctor | None], Path]) -> None:
    assert minimize(doctored(None)).peak_bytes["cpu"] > 0


def test_pickled_inputs_do_not_run_where_they_are_not_needed_and_do_where_they_are_trusted(
    doctored: Callable[[Doctor | None], Path],
) -> None:
    fingerprint = read(doctored(None)).fingerprint
    path = doctored(_PICKLED_INPUTS)
    assert read(path).fingerprint == fingerprint
    assert not Path(MARKER).exists()
    with suppress(Exception), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        load_exported(path, trust=True)
    assert Path(MARKER).exists()


def test_a_program_is_measured_with_its_own_inputs_and_with_trust_only(
    doctored: Callable[[Doctor | None], Path],
) -> None:
    model, trusted = (TorchModel(doctored(None), trust=trust) for trust in (False, True))
    plan = minimize(model.graph).plan
    with pytest.raises(UnsupportedError, match="--trust"):
        model.measure(plan, timed_calls=1)
    assert trusted.measure(plan, timed_calls=1).outputs_equal


def test_what_is_written_without_the_sample_inputs_computes_the_same_and_has_none(tmp_path: Path) -> None:
    torch.manual_seed(0)
    net, x = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 4)), torch.randn(2, 4)
    given, planned = tmp_path / "net.pt2", tmp_path / "planned.pt2"
    torch.export.save(torch.export.export(net, (x,)), given)
    model = TorchModel(given)
    model.save(minimize(model.graph).plan, planned)
    written = torch.export.load(planned)
    assert written.example_inputs is None
    assert torch.equal(written.module()(x), net(x))
    assert read(planned).n_ops == model.graph.n_ops


@pytest.mark.parametrize("how", REFUSED)
def test_what_would_run_code_is_refused_and_none_runs(doctored: Callable[[Doctor | None], Path], how: str) -> None:
    path = doctored(REFUSED[how])
    with pytest.raises((UnsupportedError, InputError)) as caught:
        read(path)
    assert not Path(MARKER).exists()
    assert "--trust" in str(caught.value)
    assert str(caught.value).isprintable()
    assert caught.value.exit_code == 3


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("how", RUNS)
def test_these_files_run_code_where_they_are_trusted(doctored: Callable[[Doctor | None], Path], how: str) -> None:
    """Shows that the refusals above matter."""
    if "constant" in how and torch.__version__.startswith("2.11."):
        pytest.skip("PyTorch 2.11 reads no pickled constants")
    path = doctored(RUNS[how])
    with suppress(Exception):  # what it makes of the result does not matter
        load_exported(path, trust=True).module()
    assert Path(MARKER).exists()


def test_a_member_that_stands_twice_is_refused(doctored: Callable[[Doctor | None], Path]) -> None:
    path = doctored(None)
    with zipfile.ZipFile(path, "a") as archive, pytest.warns(UserWarning, match="Duplicate name"):
        archive.writestr(next(name for name in archive.namelist() if name.endswith("model.json")), b"{}")
    with pytest.raises(InputError):
        read(path)
