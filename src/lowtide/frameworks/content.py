"""What a program file is, told by its content: the same name ending stands for files of several frameworks."""

import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path

from lowtide.errors import LowtideError
from lowtide.files import read_blocks
from lowtide.frameworks.wire import BYTES, VARINT, WireError, read_tag, read_varint

_TEXT_START = re.compile(rb"\A(?:\s|#[^\n]*\n)*(\w+)\s*(?::|\{|<)")
_NET_FIELDS = b"name op type num_workers device_option arg external_input external_output partition_info".split()
_GRAPH_FIELDS = b"node versions library".split()
_EXPORT_START = re.compile(rb'\A\s*\{\s*"(nodes|buffers)"\s*:')
_EXPORT_SIZE = re.compile(rb'"size_alloc"\s*:')
_LONGEST_NUMBER = 10
_OP_NAME = re.compile(rb"[A-Za-z_][\w>.]*")
_INFO_TAGS = (b"\x0a", b"\x12", b"\x1a", b"\x22", b"\x2a", b"\x32", b"\x38")
SAVED_MODEL = "saved_model.pb"
"""The file of a SavedModel's graphs, in its folder."""
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
    fields = list(_fields(head))
    return all(_NETDEF.get(number) == wire for number, wire in fields) and (2, BYTES) in fields


def is_onnx(head: bytes) -> bool:
    """Whether a file holds an ONNX model: its fields have the wire types of one, among them the version of the IR."""
    fields = list(_fields(head))
    return all(_ONNX.get(number) == wire for number, wire in fields) and (1, VARINT) in fields


def is_text_graph(head: bytes) -> bool:
    """Whether a file holds a GraphDef in text format."""
    found = _TEXT_START.match(head)
    return found is not None and found[1] in _GRAPH_FIELDS


def kind_of_graph(head: bytes) -> str | None:
    """Return what of TensorFlow's a binary file holds: a GraphDef, MetaGraphDef or SavedModel, or None.

    A node of a GraphDef is told by the text that its op is; a NetDef begins with the text of its name.
    """
    try:
        (number, wire, value), *_ = _values(head)
    except ValueError:
        return None
    if (number, wire) == (1, BYTES) and _is_node(value):
        return "GraphDef"
    found = list(_values(head))
    if (number, wire) == (1, VARINT) and {each[:2] for each in found} == {(1, VARINT), (2, BYTES)}:
        return "SavedModel" if found[1][2][:1] in (b"\x0a", b"\x12") else None
    graphs = [value for number, wire, value in found[:2] if (number, wire) == (2, BYTES)]
    if graphs and wire == BYTES and (number == 2 or value[:1] in _INFO_TAGS):
        first = next(_values(graphs[0]), (0, 0, b""))
        if first[:2] == (1, BYTES) and _is_node(first[2]):
            return "MetaGraphDef"
    return None


def _is_node(content: bytes) -> bool:
    found = {number: value for number, wire, value in _values(content) if wire == BYTES and number <= 2}
    return 1 in found and _OP_NAME.fullmatch(found.get(2, b"")) is not None


KINDS: tuple[tuple[str, Callable[[bytes], bool]], ...] = (
    ("inductor_export", is_inductor_export),
    ("json", is_json),
    ("tensorflow", lambda head: is_text_graph(head) or kind_of_graph(head) is not None),
    ("onnx", is_onnx),
    ("caffe2", lambda head: is_text_net(head) or is_binary_net(head)),
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


def _fields(head: bytes) -> Iterator[tuple[int, int]]:
    """Yield the number and the wire type of each field that begins in some bytes; a broken one ends it with (0, 0)."""
    yield from ((number, wire) for number, wire, _ in _values(head))


def _values(head: bytes) -> Iterator[tuple[int, int, bytes]]:
    """Yield the same with what is there of the contents of bytes. The last field may go on behind."""
    at = 0
    while at < len(head):
        try:
            number, wire, begin = read_tag(head, at, len(head))
            if wire not in (VARINT, BYTES):
                yield number, wire, b""
                return
            size, begin = read_varint(head, begin, len(head))
        except WireError:
            if len(head) - at > _LONGEST_NUMBER:  # else it may be cut
                yield 0, 0, b""
            return
        at = begin + size if wire == BYTES else begin
        yield number, wire, head[begin:at] if wire == BYTES else b""
