"""Load, check and write a net."""

from pathlib import Path
from typing import Any

from lowtide.core.errors import InputError, MalformedInputError, UsageError, named_type
from lowtide.core.files import read_bytes
from lowtide.frameworks.caffe2.nets.arguments import step_nets
from lowtide.frameworks.caffe2.nets.netdef import NetDef
from lowtide.frameworks.content import is_text_net
from lowtide.frameworks.protobuf.binary import read_binary, write_binary
from lowtide.frameworks.protobuf.message import deeper
from lowtide.frameworks.protobuf.text import decoded_text, read_text, write_text

NetSource = str | Path | NetDef | Any
"""A path, a NetDef of lowtide or caffe2_pb2, or an object with a method `Proto`."""

_TEXT_ENDINGS = (".pbtxt", ".prototxt")


def load_net(source: NetSource) -> NetDef:
    """Return a net; raises MalformedInputError for an invalid file, UsageError for other objects."""
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
    if is_text_net(content):
        return read_text(NetDef, decoded_text(content, where), where)
    return read_binary(NetDef, content, where)


def proto_of(source: Any) -> Any:
    proto = source.Proto() if hasattr(source, "Proto") else source
    if isinstance(proto, NetDef) or (hasattr(proto, "op") and hasattr(proto, "SerializeToString")):
        return proto
    raise UsageError(f"cannot read {named_type(source)} as a NetDef; give a NetDef, or an object with Proto()")


def in_kind_of(net: NetDef, source: NetSource) -> Any:
    if isinstance(source, str | Path):
        return net
    proto = proto_of(source)
    if isinstance(proto, NetDef):
        return net
    made = type(proto)()
    made.ParseFromString(write_binary(net))
    return made


def write_net(net: NetDef, name: str) -> bytes:
    """Return file content: text if the name ends in .pbtxt or .prototxt, else binary."""
    return write_text(net).encode() if name.lower().endswith(_TEXT_ENDINGS) else write_binary(net)


def _check(net: Any, where: str, depth: int) -> None:
    for position, op in enumerate(net.op):
        here = f"{where}: op {position}"
        if not op.type:
            raise MalformedInputError(f"{here} has no type; is this a NetDef?")
        if "" in (*op.input, *op.output):
            raise MalformedInputError(f"{here} ({op.type}) has an empty blob name")
        for argument, inner in step_nets(op):
            _check(inner, f"{here} ({op.type}), {argument.name}", deeper(depth, where))
    if not net.op and depth == 0:
        raise InputError(f"{where}: the net has no ops to plan; is this a NetDef?")
