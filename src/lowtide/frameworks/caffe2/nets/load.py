"""From a path or an object to a net: which format it has, and the checks that every net must pass."""

from pathlib import Path
from typing import Any

from lowtide.core.errors import InputError, MalformedInputError, UsageError
from lowtide.core.files import read_bytes
from lowtide.frameworks.caffe2.nets.arguments import check_op, step_nets
from lowtide.frameworks.caffe2.proto.netdef import NetDef
from lowtide.frameworks.content import is_text_net
from lowtide.frameworks.protobuf.binary import read_binary, write_binary
from lowtide.frameworks.protobuf.message import deeper
from lowtide.frameworks.protobuf.text import decoded_text, read_text, write_text

NetSource = str | Path | NetDef | Any
"""A path, a NetDef of this package or of caffe2_pb2, or what has a method `Proto` that returns one."""

TEXT_ENDINGS = (".pbtxt", ".prototxt")


def load_net(source: NetSource) -> NetDef:
    """Return the net of a source; one that is an object is not changed.

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
    """Return the net in a file's content, told by that content to be binary or text."""
    if is_text_net(content):
        return read_text(NetDef, decoded_text(content, where), where)
    return read_binary(NetDef, content, where)


def proto_of(source: Any) -> Any:
    """Return the NetDef message behind an object; raises UsageError where there is none."""
    proto = source.Proto() if hasattr(source, "Proto") else source
    if isinstance(proto, NetDef) or (hasattr(proto, "op") and hasattr(proto, "SerializeToString")):
        return proto
    raise UsageError(f"cannot read a {type(source).__name__} as a NetDef; give a NetDef, or what has Proto()")


def in_kind_of(net: NetDef, source: NetSource) -> Any:
    """Return a net as a message of the kind that the source is: of caffe2_pb2 where that was given."""
    if isinstance(source, str | Path):
        return net
    proto = proto_of(source)
    if isinstance(proto, NetDef):
        return net
    made = type(proto)()
    made.ParseFromString(write_binary(net))
    return made


def write_net(net: NetDef, name: str) -> bytes:
    """Return a net as the content of a file of this name: text for names that end in .pbtxt or .prototxt."""
    return write_text(net).encode() if name.lower().endswith(TEXT_ENDINGS) else write_binary(net)


def _check(net: Any, where: str, depth: int) -> None:
    """Check what the format itself leaves open: ops have types, names are not empty, step nets are nets."""
    for position, op in enumerate(net.op):
        here = f"{where}: op {position}"
        check_op(op, here)
        if "" in (*op.input, *op.output):
            raise MalformedInputError(f"{here} ({op.type}) names a blob with nothing; every blob needs a name")
        for argument, inner in step_nets(op):
            _check(inner, f"{here} ({op.type}), {argument.name}", deeper(depth, where))
    if not net.op and depth == 0:
        raise InputError(f"{where}: the net has no ops, so that there is nothing to plan; is this a NetDef?")
