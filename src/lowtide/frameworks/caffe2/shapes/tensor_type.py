"""Element types and shapes of blobs."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

BYTES_OF: Mapping[str, int] = {
    "float32": 4, "int32": 4, "uint8": 1, "bool": 1, "int8": 1, "uint16": 2, "int16": 2, "int64": 8, "float16": 2,
    "float64": 8,
}  # fmt: skip
CAFFE2_TYPES: Mapping[int, str] = {
    1: "float32", 2: "int32", 3: "uint8", 5: "bool", 6: "uint8", 7: "int8", 8: "uint16", 9: "int16", 10: "int64",
    12: "float16", 13: "float64",
}  # fmt: skip
"""By number in Caffe2's TensorProto."""
ONNX_TYPES: Mapping[int, str] = {
    1: "float32", 2: "uint8", 3: "int8", 4: "uint16", 5: "int16", 6: "int32", 7: "int64", 9: "bool", 10: "float16",
    11: "float64",
}  # fmt: skip
"""By number in ONNX and value_info.json."""


@dataclass(frozen=True, slots=True)
class TensorType:
    shape: tuple[int, ...]
    dtype: str = "float32"

    @property
    def size_bytes(self) -> int:
        return prod(self.shape) * BYTES_OF[self.dtype]

    def with_shape(self, *shape: int) -> "TensorType":
        return TensorType(shape, self.dtype)
