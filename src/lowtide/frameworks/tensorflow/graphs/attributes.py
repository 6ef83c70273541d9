"""Node attributes, decoded from AttrValue messages and encoded as such."""

from collections.abc import Iterable

from lowtide.frameworks.tensorflow.graphs.messages import encode_field, values
from lowtide.frameworks.wire import Content

Shape = tuple[int, ...] | None
"""By dimension, -1 for an unknown size; None for an unknown rank."""

_NUMBERS = ("i", "b", "type")


def integer(value: Content | None, default: int = 0) -> int:
    """Decode a number, a data type or a bool."""
    return next(values("AttrValue", value, *_NUMBERS), default)


def integers(value: Content | None) -> list[int]:
    return [each for items in values("AttrValue", value, "list") for each in values("ListValue", items, *_NUMBERS)]


def text(value: Content | None) -> str:
    return str(next(values("AttrValue", value, "s"), b""), "utf-8", "replace")


def texts(value: Content | None) -> list[str]:
    found = (each for items in values("AttrValue", value, "list") for each in values("ListValue", items, "s"))
    return [str(each, "utf-8", "replace") for each in found]


def shape(value: Content | None) -> Shape:
    return next(map(_shape_of, values("AttrValue", value, "shape")), None)


def shapes(value: Content | None) -> list[Shape]:
    lists = values("AttrValue", value, "list")
    return [_shape_of(each) for items in lists for each in values("ListValue", items, "shape")]


def functions(value: Content | None) -> list[str]:
    found = list(values("AttrValue", value, "func"))
    found += [each for items in values("AttrValue", value, "list") for each in values("ListValue", items, "func")]
    return [next(values("NameAttrList", each, "name"), "") for each in found]


def tensor_shape(value: Content | None) -> Shape:
    for tensor in values("AttrValue", value, "tensor"):
        return next(map(_shape_of, values("TensorProto", tensor, "tensor_shape")), ())
    return None


def of_type(number: int) -> bytes:
    return encode_field("AttrValue", "type", number)


def of_integer(value: int) -> bytes:
    return encode_field("AttrValue", "i", value)


def of_bool(value: bool) -> bytes:
    return encode_field("AttrValue", "b", int(value))


def of_text(value: str) -> bytes:
    return encode_field("AttrValue", "s", value)


def of_texts(values: Iterable[str]) -> bytes:
    return encode_field("AttrValue", "list", b"".join(encode_field("ListValue", "s", value) for value in values))


def of_shape(sizes: Shape) -> bytes:
    return encode_field("AttrValue", "shape", _shape_message(sizes))


def of_shapes(shapes: Iterable[Shape]) -> bytes:
    items = (encode_field("ListValue", "shape", _shape_message(sizes)) for sizes in shapes)
    return encode_field("AttrValue", "list", b"".join(items))


def _shape_of(message: Content) -> Shape:
    if any(values("TensorShapeProto", message, "unknown_rank")):
        return None
    return tuple(next(values("Dim", dim, "size"), 0) for dim in values("TensorShapeProto", message, "dim"))


def _shape_message(sizes: Shape) -> bytes:
    if sizes is None:
        return encode_field("TensorShapeProto", "unknown_rank", 1)
    dims = (encode_field("Dim", "size", size) for size in sizes)
    return b"".join(encode_field("TensorShapeProto", "dim", dim) for dim in dims)
