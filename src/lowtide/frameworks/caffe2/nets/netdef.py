"""Messages of caffe2.proto."""

from collections.abc import Mapping
from typing import ClassVar

from lowtide.frameworks.protobuf.message import Message, fields_of

DATA_TYPES = {
    "UNDEFINED": 0, "FLOAT": 1, "INT32": 2, "BYTE": 3, "STRING": 4, "BOOL": 5, "UINT8": 6, "INT8": 7, "UINT16": 8,
    "INT16": 9, "INT64": 10, "FLOAT16": 12, "DOUBLE": 13, "ZERO_COLLISION_HASH": 14, "REBATCHING_BUFFER": 15,
}  # fmt: skip


class NetMessage(Message):
    KINDS: ClassVar[dict[str, type[Message]]] = {}
    ENUMS: ClassVar[Mapping[str, Mapping[str, int]]] = {"enum": DATA_TYPES}
    FORMAT = "NetDef"


class DeviceOption(NetMessage):
    """The device of an op."""

    FIELDS = fields_of(
        "device_type 1 int32 device_id 2 int32 random_seed 3 uint32 node_name 4 string numa_node_id 5 int32"
        " extra_info 6 string*"
    )
    device_type: int = 0
    device_id: int = 0
    random_seed: int = 0
    node_name: str = ""
    numa_node_id: int = 0
    extra_info: list[str]


class TensorProto(NetMessage):
    FIELDS = fields_of(
        "dims 1 int64* data_type 2 enum float_data 3 float** int32_data 4 int32** byte_data 5 bytes"
        " string_data 6 bytes* name 7 string device_detail 8 DeviceOption double_data 9 double** int64_data 10 int64**"
        " segment 11 Segment raw_data 13 bytes data_format 15 uint32"
    )
    data_type: int = 1


class QTensorProto(NetMessage):
    FIELDS = fields_of(
        "dims 1 int64* precision 2 int32 scale 3 double bias 4 double is_signed 5 bool data 6 int32** name 7 string"
        " data_type 8 enum scales 9 double* biases 10 double* axis 11 int32 is_multiparam 12 bool"
    )
    data_type: int = 2


class Argument(NetMessage):
    """An argument of an op."""

    FIELDS = fields_of(
        "name 1 string f 2 float i 3 int64 s 4 bytes floats 5 float* ints 6 int64* strings 7 bytes* n 8 NetDef"
        " nets 9 NetDef* t 10 TensorProto tensors 11 TensorProto* qtensors 12 QTensorProto*"
    )
    name: str = ""
    f: float = 0.0
    i: int = 0
    s: bytes = b""
    floats: list[float]
    ints: list[int]
    strings: list[bytes]
    n: "NetDef"
    nets: list["NetDef"]
    t: TensorProto


class OperatorDef(NetMessage):
    """One op."""

    FIELDS = fields_of(
        "input 1 string* output 2 string* name 3 string type 4 string arg 5 Argument* device_option 6 DeviceOption"
        " engine 7 string control_input 8 string* is_gradient_op 9 bool debug_info 10 string domain 11 string"
        " op_version 12 int64"
    )
    input: list[str]
    output: list[str]
    name: str = ""
    type: str = ""
    arg: list[Argument]
    device_option: DeviceOption
    engine: str = ""
    control_input: list[str]
    is_gradient_op: bool = False
    debug_info: str = ""
    domain: str = ""
    op_version: int = 0


NetMessage.declare(
    Segment="begin 1 int64 end 2 int64",
    MapFieldEntry="key 1 string val 2 string",
    BackendOptions="backend_name 1 string option 2 MapFieldEntry*",
    PartitionInfo="name 1 string device_id 2 int32* extra_info 3 string backend_options 4 BackendOptions*",
)


class NetDef(NetMessage):
    """A net."""

    FIELDS = fields_of(
        "name 1 string op 2 OperatorDef* type 3 string num_workers 4 int32 device_option 5 DeviceOption arg 6 Argument*"
        " external_input 7 string* external_output 8 string* partition_info 9 PartitionInfo*"
    )
    name: str = ""
    op: list[OperatorDef]
    type: str = ""
    num_workers: int = 0
    device_option: DeviceOption
    arg: list[Argument]
    external_input: list[str]
    external_output: list[str]
