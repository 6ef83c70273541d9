"""Detect the kind of a program file from its content, because several frameworks share file endings."""

import os
import re
from collections.abc import Callable
from pathlib import Path

from lowtide.core.errors import LowtideError
from lowtide.core.files import read_blocks
from lowtide.frameworks.wire import BROKEN, BYTES, VARINT, begun_fields

_TEXT_START = re.compile(rb"\A(?:\s|#[^\n]*\n)*(\w+)\s*(?::|\{|<)")
_NET_FIELDS = b"name op type num_workers device_option arg external_input external_output partition_info".split()
_GRAPH_FIELDS = b"node versions library".split()
_EXPORT_START = re.compile(rb'\A\s*\{\s*"(nodes|buffers)"\s*:')
_EXPORT_SIZE = re.compile(rb'"size_alloc"\s*:')
_HLO_START = re.compile(rb"\A(?>\s|//[^\n]*\n|/\*.*?\*/)*+HloModule\s", re.DOTALL)
_MLIR_START = re.compile(rb"\A(?>\s|//[^\n]*\n|#\w+ = [^\n]*\n)*+(?:builtin\.)?module\s*(?:@|attributes\b|\{)")
_OP_NAME = re.compile(rb"[A-Za-z_][\w>.]*")
_INFO_TAGS = (b"\x0a", b"\x12", b"\x1a", b"\x22", b"\x2a", b"\x32", b"\x38")
SAVED_MODEL = "saved_model.pb"
_SNAPSHOT_KEYS = 200
_NETDEF = {4: VARINT, **dict.fromkeys((1, 2, 3, 5, 6, 7, 8, 9), BYTES)}
_ONNX = {1: VARINT, 5: VARINT, **dict.fromkeys((2, 3, 4, 6, 7, 8, 14, 20, 25, 26), BYTES)}


def is_json(head: bytes) -> bool:
    return head.lstrip()[:1] in (b"{", b"[")


def is_inductor_export(head: bytes) -> bool:
    """Whether a file is Inductor's export: JSON with nodes or sized buffers."""
    found = _EXPORT_START.match(head)
    return found is not None and (found[1] == b"nodes" or _EXPORT_SIZE.search(head) is not None)


def is_text_net(head: bytes) -> bool:
    """Whether a file is a NetDef in text format."""
    found = _TEXT_START.match(head)
    return found is not None and found[1] in _NET_FIELDS


def is_binary_net(head: bytes) -> bool:
    found = _fields(head)
    return all(_NETDEF.get(number) == wire for number, wire in found) and (2, BYTES) in found


def is_onnx(head: bytes) -> bool:
    found = _fields(head)
    return all(_ONNX.get(number) == wire for number, wire in found) and (1, VARINT) in found


def is_hlo_text(head: bytes) -> bool:
    return _HLO_START.match(head) is not None


def is_hlo_proto(head: bytes) -> bool:
    """Whether a file is an HloModuleProto or an HloProto."""
    first = next(begun_fields(head), None)
    if first is None or first[:2] != (1, BYTES) or not isinstance(first[2], bytes):
        return False
    return _is_hlo_module(head) or _is_hlo_module(first[2])


def is_mlir(head: bytes) -> bool:
    """Whether a file is an MLIR module, as text or bytecode."""
    return head.startswith(b"ML\xefR") or _MLIR_START.match(head) is not None


def is_text_graph(head: bytes) -> bool:
    """Whether a file is a GraphDef in text format."""
    found = _TEXT_START.match(head)
    return found is not None and found[1] in _GRAPH_FIELDS


def is_memory_snapshot(head: bytes) -> bool:
    return head[:1] == b"\x80" and any(key in head[:_SNAPSHOT_KEYS] for key in (b"segments", b"device_traces"))


def kind_of_graph(head: bytes) -> str | None:
    """Return a binary file's TensorFlow message: GraphDef, MetaGraphDef, SavedModel or None.

    A GraphDef starts with a node that names its op, a NetDef with its own name.
    """
    found = _contents(head)
    if not found:
        return None
    number, wire, value = found[0]
    if (number, wire) == (1, BYTES) and _is_node(value):
        return "GraphDef"
    if (number, wire) == (1, VARINT) and {each[:2] for each in found} == {(1, VARINT), (2, BYTES)}:
        return "SavedModel" if found[1][2][:1] in (b"\x0a", b"\x12") else None
    graphs = [value for number, wire, value in found[:2] if (number, wire) == (2, BYTES)]
    if graphs and wire == BYTES and (number == 2 or value[:1] in _INFO_TAGS):
        first = next(iter(_contents(graphs[0])), (0, 0, b""))
        if first[:2] == (1, BYTES) and _is_node(first[2]):
            return "MetaGraphDef"
    return None


def _is_node(content: bytes) -> bool:
    found = {number: value for number, wire, value in _contents(content) if wire == BYTES and number <= 2}
    return 1 in found and _OP_NAME.fullmatch(found.get(2, b"")) is not None


KINDS: tuple[tuple[str, Callable[[bytes], bool]], ...] = (
    ("inductor_export", is_inductor_export),
    ("json", is_json),
    ("xla", lambda head: is_hlo_text(head) or is_mlir(head) or is_hlo_proto(head)),
    ("tensorflow", lambda head: is_text_graph(head) or kind_of_graph(head) is not None),
    ("onnx", is_onnx),
    ("caffe2", lambda head: is_text_net(head) or is_binary_net(head)),
    ("memory_snapshot", is_memory_snapshot),
)
"""Most certain first."""


def kind_of_file(name: str) -> str | None:
    try:
        path = Path(name)
        head = next(read_blocks(path / SAVED_MODEL if os.path.isdir(path) else path), b"")
    except LowtideError:
        return None
    return next((kind for kind, tells in KINDS if tells(head)), None)


def _is_hlo_module(head: bytes) -> bool:
    """Whether a message starts with two names, then a computation with instructions."""
    found = begun_fields(head)
    start = [next(found, BROKEN) for _ in range(3)]
    if [(number, wire) for number, wire, _ in start] != [(1, BYTES), (2, BYTES), (3, BYTES)]:
        return False
    computation = start[2][2]
    if not isinstance(computation, bytes):
        return False
    inner = [(number, wire) for (number, wire, _), _ in zip(begun_fields(computation), range(2), strict=False)]
    return inner == [(1, BYTES), (2, BYTES)]


def _fields(head: bytes) -> list[tuple[int, int]]:
    return [(number, wire) for number, wire, _ in begun_fields(head)]


def _contents(head: bytes) -> list[tuple[int, int, bytes]]:
    return [(number, wire, value if isinstance(value, bytes) else b"") for number, wire, value in begun_fields(head)]
