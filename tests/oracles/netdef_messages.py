"""NetDef messages of protocol buffers themselves, made from the same declarations, as an oracle for both formats."""

from functools import cache
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from lowtide.frameworks.caffe2.nets.netdef import DATA_TYPES, NetMessage

_KINDS = {
    "string": 9, "bytes": 12, "float": 2, "double": 1, "int32": 5, "int64": 3, "uint32": 13, "bool": 8, "enum": 14,
}  # fmt: skip


def message_class(name: str) -> Any:
    """Return the class of a message."""
    return message_factory.GetMessageClass(_pool().FindMessageTypeByName(f"net.{name}"))


@cache
def _pool() -> Any:
    pool = descriptor_pool.DescriptorPool()
    file = descriptor_pb2.FileDescriptorProto(name="net.proto", package="net", syntax="proto2")
    types = file.enum_type.add(name="DataType")
    for value, number in DATA_TYPES.items():
        types.value.add(name=value, number=number)
    for kind, declared in NetMessage.KINDS.items():
        message = file.message_type.add(name=kind)
        for field in declared.FIELDS:
            made = message.field.add(name=field.name, number=field.number, label=3 if field.repeated else 1)
            made.type = 11 if field.is_message else _KINDS[field.kind]
            if field.is_message or field.kind == "enum":
                made.type_name = f".net.{'DataType' if field.kind == 'enum' else field.kind}"
            if field.packed:
                made.options.packed = True
    pool.Add(file)
    return pool
