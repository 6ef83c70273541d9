r"""Run memonger's own tests, as its wheel ships them, with `lowtide.caffe2.memonger` in place of memonger.

Caffe2 needs an older Python than lowtide does, so that each runs in its own; see record_caffe2_runs.py for the
environment. Whatever the tests call goes over a pipe, nets as the bytes of messages, and comes back.

    caffe2/bin/pip install networkx hypothesis==6.14.9
    caffe2/bin/python tests/oracles/memonger_own_tests.py python
"""

import enum
import importlib
import pickle
import subprocess
import sys
import types
import unittest
from typing import Any, BinaryIO, NamedTuple


class RefusedError(AssertionError, RuntimeError):
    """What memonger raises where lowtide raises an error of its own."""


class LiveRange(NamedTuple):
    """What both sides know as a live range."""

    defined: Any
    used: Any
    size: Any


def is_a(value: Any, kinds: Any) -> bool:
    """Whether a value is of a kind; a value of any type stays one, to type checkers."""
    return isinstance(value, kinds)


def send(stream: BinaryIO, value: Any) -> None:
    """Write plain values."""
    content = pickle.dumps(value)
    stream.write(len(content).to_bytes(8, "big") + content)
    stream.flush()


def receive(stream: BinaryIO) -> Any:
    """Read what `send` wrote."""
    return pickle.loads(stream.read(int.from_bytes(stream.read(8), "big")))


def serve() -> None:
    """Answer calls until the pipe closes; under lowtide."""
    from lowtide.caffe2 import NetDef, memonger, write_net
    from lowtide.core.errors import LowtideError
    from lowtide.frameworks.caffe2.nets.load import read_net

    kept: list[Any] = []

    def taken(value: Any) -> Any:
        if is_a(value, dict) and "is" in value:
            kind, content = value["is"], value["of"]
            if kind in ("net", "ops"):
                net = read_net(content, "a call")
                return net if kind == "net" else net.op
            if kind == "range":
                return memonger.LiveRange(*content)
            if kind == "blobs":
                return {name: types.SimpleNamespace(nbytes=size) for name, size in content.items()}
            return memonger.AssignmentAlgorithm(content) if kind == "algorithm" else kept[content]
        if is_a(value, dict):
            return {key: taken(inner) for key, inner in value.items()}
        return type(value)(map(taken, value)) if is_a(value, (list, tuple, set)) else value

    def given(value: Any) -> Any:
        if is_a(value, NetDef):
            return {"is": "net", "of": write_net(value, "net.pb")}
        if is_a(value, memonger.LiveRange):
            return {"is": "range", "of": tuple(value)}
        if is_a(value, (memonger.Optimization, memonger.Statistics)):
            return {"is": "fields", "of": {name: given(inner) for name, inner in value._asdict().items()}}
        if is_a(value, list):
            return [given(inner) for inner in value]
        if is_a(value, tuple):
            return tuple(given(inner) for inner in value)
        if is_a(value, (dict, str, int, bool)):
            return value
        kept.append(value)
        return {"is": "graph", "of": len(kept) - 1, "edges": list(value.edges())}

    stream: Any = sys.stdin.buffer
    while stream.peek(1):
        name, arguments, settings = receive(stream)
        try:
            result = given(getattr(memonger, name)(*map(taken, arguments), **taken(settings)))
        except LowtideError as error:
            result = {"is": "error", "of": str(error)}
        send(sys.stdout.buffer, result)


def stand_in(python: str) -> types.ModuleType:
    """Return a module with memonger's names, which asks the other side; under Caffe2."""
    pb2: Any = importlib.import_module("caffe2.proto.caffe2_pb2")
    workspace: Any = importlib.import_module("caffe2.python.workspace")
    command = [*python.split(), "-m", "tests.oracles.memonger_own_tests", "serve"]
    other = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    to: Any = other.stdin
    back: Any = other.stdout

    def given(value: Any) -> Any:
        if is_a(value, LiveRange):
            return {"is": "range", "of": tuple(value)}
        if is_a(value, enum.Enum):
            return {"is": "algorithm", "of": value.value}
        if hasattr(value, "handle"):
            return {"is": "graph", "of": value.handle}
        if is_a(value, (list, tuple, set)):
            return type(value)(map(given, value))
        if is_a(value, dict):
            return {str(key): given(inner) for key, inner in value.items()}
        net = value.Proto() if hasattr(value, "Proto") else value
        if is_a(net, pb2.NetDef):
            return {"is": "net", "of": net.SerializeToString()}
        if hasattr(value, "__len__") and len(value) and is_a(value[0], pb2.OperatorDef):
            return {"is": "ops", "of": pb2.NetDef(op=value).SerializeToString()}
        return value if is_a(value, (int, type(None))) else str(value)

    def taken(value: Any) -> Any:
        if is_a(value, dict) and "is" in value:
            kind, content = value["is"], value["of"]
            if kind == "error":
                raise RefusedError(content)
            if kind == "net":
                return pb2.NetDef.FromString(content)
            if kind == "graph":
                edges: list[Any] = value["edges"]
                return types.SimpleNamespace(handle=content, edges=lambda: edges)
            if kind == "fields":
                return types.SimpleNamespace(**{name: taken(inner) for name, inner in content.items()})
            return LiveRange(*content)
        return type(value)(map(taken, value)) if is_a(value, (list, tuple)) else value

    def asking(name: str) -> Any:
        def ask(*arguments: Any, **settings: Any) -> Any:
            asked = given(list(arguments))
            if name in ("compute_statistics", "collect_blob_sizes"):
                blobs = {blob: workspace.FetchBlob(blob) for blob in workspace.Blobs()}
                sizes = {blob: array.nbytes for blob, array in blobs.items() if hasattr(array, "nbytes")}
                asked.append({"is": "blobs", "of": sizes})
            send(to, (name, asked, given(settings)))
            return taken(receive(back))

        return ask

    class Asked(types.ModuleType):
        LiveRange = LiveRange
        AssignmentAlgorithm = enum.Enum("AssignmentAlgorithm", {"GREEDY": 0, "DYNAMIC_PROGRAMMING": 1})

        def __getattr__(self, name: str) -> Any:
            return asking(name)

    return Asked("caffe2.python.memonger")


def main(python: str) -> None:
    """Run the tests and print which pass."""
    caffe2: Any = importlib.import_module("caffe2.python")
    caffe2.memonger = sys.modules["caffe2.python.memonger"] = stand_in(python)
    sys.argv = ["memonger_test", "-v"]
    unittest.main("caffe2.python.memonger_test")


if __name__ == "__main__":
    serve() if sys.argv[1] == "serve" else main(sys.argv[1])
