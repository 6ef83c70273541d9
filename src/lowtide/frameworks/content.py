"""What a program file is, told by its content: the same name ending stands for files of several frameworks."""

import re
from collections.abc import Callable
from pathlib import Path

from lowtide.errors import LowtideError
from lowtide.files import read_blocks
from lowtide.frameworks.wire import BROKEN, BYTES, VARINT, fields

_TEXT_START = re.compile(rb"\A(?:\s|#[^\n]*\n)*(\w+)\s*(?::|\{|<)")
_NET_FIELDS = b"name op type num_workers device_option arg external_input external_output partition_info".split()
_EXPORT_START = re.compile(rb'\A\s*\{\s*"(nodes|buffers)"\s*:')
_EXPORT_SIZE = re.compile(rb'"size_alloc"\s*:')
_HLO_START = re.compile(rb"\A(?>\s|//[^\n]*\n|/\*.*?\*/)*+HloModule\s", re.DOTALL)
_MLIR_START = re.compile(rb"\A(?>\s|//[^\n]*\n|#\w+ = [^\n]*\n)*+(?:builtin\.)?module\s*(?:@|attributes\b|\{)")
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
    first = next(fields(head), None)
    if first is None or first[:2] != (1, BYTES) or not isinstance(first[2], bytes):
        return False
    return _is_hlo_module(head) or _is_hlo_module(first[2])


def is_mlir(head: bytes) -> bool:
    """Whether a file holds an MLIR module, as text or as bytecode: StableHLO, as far as anybody writes such files."""
    return head.startswith(b"ML\xefR") or _MLIR_START.match(head) is not None


KINDS: tuple[tuple[str, Callable[[bytes], bool]], ...] = (
    ("inductor_export", is_inductor_export),
    ("json", is_json),
    ("xla", lambda head: is_hlo_text(head) or is_mlir(head) or is_hlo_proto(head)),
    ("onnx", is_onnx),
    ("caffe2", lambda head: is_text_net(head) or is_binary_net(head)),
)
"""Kinds of files and how each is told, the surest first; frameworks by their names."""


def kind_of_file(name: str) -> str | None:
    """Return the kind of a file that can be read and tells it, None for all others."""
    try:
        head = next(read_blocks(Path(name)), b"")
    except LowtideError:
        return None
    return next((kind for kind, tells in KINDS if tells(head)), None)


def _is_hlo_module(head: bytes) -> bool:
    """Whether a message begins as an HloModuleProto does: two names, then a computation with instructions."""
    found = fields(head)
    start = [next(found, BROKEN) for _ in range(3)]
    if [(number, wire) for number, wire, _ in start] != [(1, BYTES), (2, BYTES), (3, BYTES)]:
        return False
    computation = start[2][2]
    if not isinstance(computation, bytes):
        return False
    inner = [(number, wire) for (number, wire, _), _ in zip(fields(computation), range(2), strict=False)]
    return inner == [(1, BYTES), (2, BYTES)]


def _fields(head: bytes) -> list[tuple[int, int]]:
    """Return the number and the wire type of each field that begins in some bytes."""
    return [(number, wire) for number, wire, _ in fields(head)]
