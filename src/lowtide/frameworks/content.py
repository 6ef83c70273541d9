"""What a program file is, told by its content: the same name ending stands for files of several frameworks."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path

from lowtide.errors import LowtideError
from lowtide.files import read_blocks

_TEXT_START = re.compile(rb"\A(?:\s|#[^\n]*\n)*(\w+)\s*(?::|\{|<)")
_NET_FIELDS = b"name op type num_workers device_option arg external_input external_output partition_info".split()
_EXPORT_START = re.compile(rb'\A\s*\{\s*"(nodes|buffers)"\s*:')
_EXPORT_SIZE = re.compile(rb'"size_alloc"\s*:')
_VARINT, _BYTES = 0, 2
_NETDEF = {4: _VARINT, **dict.fromkeys((1, 2, 3, 5, 6, 7, 8, 9), _BYTES)}
_ONNX = {1: _VARINT, 5: _VARINT, **dict.fromkeys((2, 3, 4, 6, 7, 8, 14, 20, 25, 26), _BYTES)}


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
    fields = list(_fields(head))
    return all(_NETDEF.get(number) == wire for number, wire in fields) and (2, _BYTES) in fields


def is_onnx(head: bytes) -> bool:
    """Whether a file holds an ONNX model: its fields have the wire types of one, among them the version of the IR."""
    fields = list(_fields(head))
    return all(_ONNX.get(number) == wire for number, wire in fields) and (1, _VARINT) in fields


KINDS: tuple[tuple[str, Callable[[bytes], bool]], ...] = (
    ("inductor_export", is_inductor_export),
    ("json", is_json),
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


def _fields(head: bytes) -> Iterator[tuple[int, int]]:
    """Yield the number and the wire type of each field that begins in some bytes; a broken one ends it with (0, 0)."""
    at = 0
    while at < len(head):
        tag, at = _number(head, at)
        yield tag >> 3, tag & 7
        if tag & 7 == _VARINT:
            _, at = _number(head, at)
        elif tag & 7 == _BYTES:
            size, at = _number(head, at)
            at += size
        else:
            return


def _number(head: bytes, at: int) -> tuple[int, int]:
    value = 0
    for place, byte in enumerate(head[at : at + 10]):
        value |= (byte & 127) << 7 * place
        if byte < 128:
            return value, at + place + 1
    return 0, at + 10
