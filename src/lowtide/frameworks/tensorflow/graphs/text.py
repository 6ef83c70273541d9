"""GraphDefs in the text format of protocol buffers: through messages into the binary format, and back."""

from collections.abc import Mapping
from typing import Any, ClassVar

from lowtide.core.errors import UnsupportedError
from lowtide.frameworks.protobuf.binary import read_binary, write_binary
from lowtide.frameworks.protobuf.message import Message, fields_of
from lowtide.frameworks.protobuf.text import decoded_text, read_text, write_text
from lowtide.frameworks.wire import Content

_TYPES = (
    "INVALID FLOAT DOUBLE INT32 UINT8 INT16 INT8 STRING COMPLEX64 INT64 BOOL QINT8 QUINT8 QINT32 BFLOAT16 QINT16"
    " QUINT16 UINT16 COMPLEX128 HALF RESOURCE VARIANT UINT32 UINT64 FLOAT8_E5M2 FLOAT8_E4M3FN FLOAT8_E4M3FNUZ"
    " FLOAT8_E4M3B11FNUZ FLOAT8_E5M2FNUZ INT4 UINT4 INT2 UINT2 FLOAT4_E2M1FN"
)
_FULL = (
    "UNSET:0 VAR:1 ANY:2 PRODUCT:3 NAMED:4 FOR_EACH:20 CALLABLE:100 BOOL:200 UINT8:201 UINT16:202 UINT32:203 UINT64:204"
    " INT8:205 INT16:206 INT32:207 INT64:208 HALF:209 FLOAT:210 DOUBLE:211 COMPLEX64:212 COMPLEX128:213 STRING:214"
    " BFLOAT16:215 TENSOR:1000 ARRAY:1001 OPTIONAL:1002 LITERAL:1003 ENCODED:1004 SHAPE_TENSOR:1005 DATASET:10102"
    " RAGGED:10103 ITERATOR:10104 MUTEX_LOCK:10202 LEGACY_VARIANT:10203"
)
_DATA_TYPES = {f"DT_{name}": number for number, name in enumerate(_TYPES.split())}
_FULL_TYPES = {f"TFT_{name}": int(number) for name, _, number in (pair.partition(":") for pair in _FULL.split())}


class GraphMessage(Message):
    """A message of graph.proto, or of one that it needs."""

    KINDS: ClassVar[dict[str, type[Message]]] = {}
    ENUMS: ClassVar[Mapping[str, Mapping[str, int]]] = {
        "data_type": _DATA_TYPES | {f"{name}_REF": number + 100 for name, number in _DATA_TYPES.items()},
        "full_type": _FULL_TYPES,
    }
    FORMAT = "GraphDef"


_DECLARED = {
    "GraphDef": "node 1 NodeDef* library 2 FunctionDefLibrary version 3 int32 versions 4 VersionDef",
    "NodeDef": "name 1 string op 2 string input 3 string* device 4 string attr 5 AttrEntry*"
    " experimental_debug_info 6 DebugInfo experimental_type 7 FullTypeDef",
    "DebugInfo": "original_node_names 1 string* original_func_names 2 string*",
    "AttrEntry": "key 1 string value 2 AttrValue",
    "AttrValue": "list 1 ListValue s 2 bytes i 3 int64 f 4 float b 5 bool type 6 data_type shape 7 TensorShapeProto"
    " tensor 8 TensorProto placeholder 9 string func 10 NameAttrList",
    "ListValue": "s 2 bytes* i 3 int64** f 4 float** b 5 bool** type 6 data_type** shape 7 TensorShapeProto*"
    " tensor 8 TensorProto* func 9 NameAttrList*",
    "NameAttrList": "name 1 string attr 2 AttrEntry*",
    "TensorShapeProto": "dim 2 Dim* unknown_rank 3 bool",
    "Dim": "size 1 int64 name 2 string",
    "TensorProto": "dtype 1 data_type tensor_shape 2 TensorShapeProto version_number 3 int32 tensor_content 4 bytes"
    " float_val 5 float** double_val 6 double** int_val 7 int32** string_val 8 bytes* scomplex_val 9 float**"
    " int64_val 10 int64** bool_val 11 bool** dcomplex_val 12 double** half_val 13 int32** uint32_val 16 uint32**"
    " uint64_val 17 uint64** float8_val 18 bytes",
    "FullTypeDef": "type_id 1 full_type args 2 FullTypeDef* s 3 string i 4 int64",
    "VersionDef": "producer 1 int32 min_consumer 2 int32 bad_consumers 3 int32**",
    "FunctionDefLibrary": "function 1 FunctionDef* gradient 2 GradientDef* registered_gradients 3 RegisteredGradient*",
    "GradientDef": "function_name 1 string gradient_func 2 string",
    "RegisteredGradient": "gradient_func 1 string registered_op_type 2 string",
    "FunctionDef": "signature 1 OpDef node_def 3 NodeDef* ret 4 TextEntry* attr 5 AttrEntry* control_ret 6 TextEntry*"
    " arg_attr 7 ArgAttrEntry* resource_arg_unique_id 8 NumberEntry*",
    "TextEntry": "key 1 string value 2 string",
    "NumberEntry": "key 1 uint32 value 2 uint32",
    "ArgAttrEntry": "key 1 uint32 value 2 ArgAttrs",
    "ArgAttrs": "attr 1 AttrEntry*",
    "OpDef": "name 1 string input_arg 2 ArgDef* output_arg 3 ArgDef* attr 4 AttrDef* summary 5 string"
    " description 6 string deprecation 8 OpDeprecation is_aggregate 16 bool is_stateful 17 bool is_commutative 18 bool"
    " allows_uninitialized_input 19 bool control_output 20 string* is_distributed_communication 21 bool",
    "OpDeprecation": "version 1 int32 explanation 2 string",
    "ArgDef": "name 1 string description 2 string type 3 data_type type_attr 4 string number_attr 5 string"
    " type_list_attr 6 string is_ref 16 bool experimental_full_type 17 FullTypeDef",
    "AttrDef": "name 1 string type 2 string default_value 3 AttrValue description 4 string has_minimum 5 bool"
    " minimum 6 int64 allowed_values 7 AttrValue",
}
"""Messages of TensorFlow by name, and their fields."""

_DEFAULTS: Mapping[str, Any] = {"string": "", "bytes": b"", "bool": False, "float": 0.0, "double": 0.0}


def _declare(name: str, declared: str) -> None:
    fields = fields_of(declared)
    scalars = {field.name: _DEFAULTS.get(field.kind, 0) for field in fields if not (field.repeated or field.is_message)}
    type(name, (GraphMessage,), {"FIELDS": fields, **scalars, "__doc__": f"A {name} of TensorFlow."})


for _name, _fields in _DECLARED.items():
    _declare(_name, _fields)


def from_text(content: Content, where: str) -> bytes:
    """Return the binary form of a GraphDef in text format.

    Raises MalformedInputError with the line, UnsupportedError for a field that only its name is known of.
    """
    try:
        return write_binary(read_text(GraphMessage.KINDS["GraphDef"], decoded_text(bytes(content), where), where))
    except UnsupportedError as error:
        raise UnsupportedError(f"{where}: {error}; write the graph as binary where it was made") from None


def to_text(content: bytes, where: str) -> bytes:
    """Return the text form of a GraphDef; raises UnsupportedError for a field that only its number is known of."""
    return write_text(read_binary(GraphMessage.KINDS["GraphDef"], content, where)).encode()
