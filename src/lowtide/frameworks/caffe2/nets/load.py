"""Load a net from a file or an object, check it, and write it."""

from pathlib import Path
from typing import Any

from lowtide.core.errors import InputError, MalformedInputError, UsageError
from lowtide.core.files import read_bytes
from lowtide.frameworks.caffe2.nets.arguments import step_nets
from lowtide.frameworks.caffe2.nets.netdef import NetDef
from lowtide.frameworks.content import is_text_net
from lowtide.frameworks.protobuf.binary_read import read_binary
from lowtide.frameworks.protobuf.binary_write import write_binary
from lowtide.frameworks.protobuf.message import deeper
from lowtide.frameworks.protobuf.text_read import decoded_text, read_text
from lowtide.frameworks.protobuf.text_write import write_text

NetSource = str | Path | NetDef | Any
"""A path, a NetDef of lowtide or of caffe2_pb2, or an object with a method `Proto` that returns one."""

_TEXT_ENDINGS = (".pbtxt", ".prototxt")


def load_net(source: NetSource) -> NetDef:
    """Return the net of a source; an object is not changed.

    Raises MalformedInputError for a file that is no NetDef, UsageError for an object of another kind.
    """
    if isinstance(source, str | Path):
        content, where = read_bytes(Path(source)), str(source)
        net = read_net(content, where)
    else:
        proto = proto_of(source)
        where = f"net {proto.name!r}"
        net = proto if isinstance(proto, NetDef) else read_binary(NetDef, proto.SerializeToString(), where)
    _check(net, where, 0)
    return net


def read_net(content: bytes, where: str) -> NetDef:
    """Return the net in the content of a file, binary or text."""
    if is_text_net(content):
        return read_text(NetDef, decoded_text(content, where), where)
    return read_binary(NetDef, content, where)


def proto_of(source: Any) -> Any:
    """Return the NetDef message of an object; raises UsageError if there is none."""
    proto = source.Proto() if hasattr(source, "Proto") else source
    if isinstance(proto, NetDef) or (hasattr(proto, "op") and hasattr(proto, "SerializeToString")):
        return proto
    raise UsageError(f"cannot read a {type(source).__name__} as a NetDef; give a NetDef, or an object with Proto()")


def in_kind_of(net: NetDef, source: NetSource) -> Any:
    """Return a net as a message of the source's class: of caffe2_pb2 if the source is."""
    if isinstance(source, str | Path):
        return net
    proto = proto_of(source)
    if isinstance(proto, NetDef):
        return net
    made = type(proto)()
    made.ParseFromString(write_binary(net))
    return made


def write_net(net: NetDef, name: str) -> bytes:
    """Return the content of a file of this name: text if it ends in .pbtxt or .prototxt, else binary."""
    return write_text(net).encode() if name.lower().endswith(_TEXT_ENDINGS) else write_binary(net)


def _check(net: Any, where: str, depth: int) -> None:
    """Raise InputError for an op without a type, an empty blob name, an invalid step net or an empty net."""
    for position, op in enumerate(net.op):
        here = f"{where}: op {position}"
        if not op.type:
            raise MalformedInputError(f"{here} has no type; is this a NetDef?")
        if "" in (*op.input, *op.output):
            raise MalformedInputError(f"{here} ({op.type}) has an empty blob name; every blob needs a name")
        for argument, inner in step_nets(op):
            _check(inner, f"{here} ({op.type}), {argument.name}", deeper(depth, where))
    if not net.op and depth == 0:
        raise InputError(f"{where}: the net has no ops to plan; is this a NetDef?")
