"""What a program file is, told by its content: the same name ending stands for files of several frameworks."""

import os
import re
from collections.abc import Callable
from pathlib import Path

from lowtide.core.errors import LowtideError
from lowtide.core.files import read_blocks
from lowtide.frameworks.cut_message import BROKEN, begun_fields
from lowtide.frameworks.wire import BYTES, VARINT

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
"""The file of a SavedModel's graphs, in its folder."""
_SNAPSHOT_KEYS = 200
"""Bytes within which a snapshot names its first key."""
_NETDEF = {4: VARINT, **dict.fromkeys((1, 2, 3, 5, 6, 7, 8, 9), BYTES)}
_ONNX = {1: VARINT, 5: VARINT, **dict.fromkeys((2, 3, 4, 6, 7, 8, 14, 20, 25, 26), BYTES)}


def is_json(head: bytes) -> bool:
    """Whether a file holds JSON."""
    return head.lstrip()[:1] in (b"{", b"[")


def is_inductor_export(head: bytes) -> bool:
    """Whether a file holds what Inductor exports for a simulator: JSON that begins with nodes or such buffers."""
    found = _EXPORT_START.match(head)
    return found is not None and (found[1] == b"nodes" or _EXPORT_SIZE.search(head) is not None)


def is_text_net(head: bytes) -> bool:
    """Whether a file holds a NetDef in text format."""
    found = _TEXT_START.match(head)
    return found is not None and found[1] in _NET_FIELDS


def is_binary_net(head: bytes) -> bool:
    """Whether a file holds a NetDef in binary format: its fields have the wire types of one, among them an op."""
    found = _fields(head)
    return all(_NETDEF.get(number) == wire for number, wire in found) and (2, BYTES) in found


def is_onnx(head: bytes) -> bool:
    """Whether a file holds an ONNX model: its fields have the wire types of one, among them the version of the IR."""
    found = _fields(head)
    return all(_ONNX.get(number) == wire for number, wire in found) and (1, VARINT) in found


def is_hlo_text(head: bytes) -> bool:
    """Whether a file holds an HLO module in text."""
    return _HLO_START.match(head) is not None


def is_hlo_proto(head: bytes) -> bool:
    """Whether a file holds an HloModuleProto, or an HloProto with one."""
    first = next(begun_fields(head), None)
    if first is None or first[:2] != (1, BYTES) or not isinstance(first[2], bytes):
        return False
    return _is_hlo_module(head) or _is_hlo_module(first[2])


def is_mlir(head: bytes) -> bool:
    """Whether a file holds an MLIR module, as text or as bytecode: StableHLO, as far as anybody writes such files."""
    return head.startswith(b"ML\xefR") or _MLIR_START.match(head) is not None


def is_text_graph(head: bytes) -> bool:
    """Whether a file holds a GraphDef in text format."""
    found = _TEXT_START.match(head)
    return found is not None and found[1] in _GRAPH_FIELDS


def is_memory_snapshot(head: bytes) -> bool:
    """Whether a file holds a memory snapshot of PyTorch: a pickle whose first keys are those of one."""
    return head[:1] == b"\x80" and any(key in head[:_SNAPSHOT_KEYS] for key in (b"segments", b"device_traces"))


def kind_of_graph(head: bytes) -> str | None:
    """Return what of TensorFlow's a binary file holds: a GraphDef, MetaGraphDef or SavedModel, or None.

    A node of a GraphDef is told by the text that its op is; a NetDef begins with the text of its name.
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
"""Kinds of files and how each is told, the surest first; frameworks by their names."""


def kind_of_file(name: str) -> str | None:
    """Return the kind of a file that can be read and tells it, None for all others."""
    try:
        path = Path(name)
        head = next(read_blocks(path / SAVED_MODEL if os.path.isdir(path) else path), b"")
    except LowtideError:
        return None
    return next((kind for kind, tells in KINDS if tells(head)), None)


def _is_hlo_module(head: bytes) -> bool:
    """Whether a message begins as an HloModuleProto does: two names, then a computation with instructions."""
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
    """Return the number and the wire type of each field that begins in some bytes."""
    return [(number, wire) for number, wire, _ in begun_fields(head)]


def _contents(head: bytes) -> list[tuple[int, int, bytes]]:
    """Return the same with what is there of the contents of bytes; numbers have none."""
    return [(number, wire, value if isinstance(value, bytes) else b"") for number, wire, value in begun_fields(head)]
