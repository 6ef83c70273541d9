"""Values of attributes: out of their messages and into them."""

from collections.abc import Iterable, Sequence

from lowtide.frameworks.wire import (
    BYTES,
    VARINT,
    Content,
    encode_bytes,
    encode_number,
    fields,
    read_varint,
)

Shape = tuple[int, ...] | None
"""Sizes by dimension, -1 where one is not known; None where not even their number is."""

_LIST, _TEXT, _INT, _BOOL, _TYPE, _SHAPE, _TENSOR, _FUNC = 1, 2, 3, 5, 6, 7, 8, 10
_NAME_OF_FUNCTION = 1
_DIM, _UNKNOWN_RANK = 2, 3


def integer(value: Content | None, default: int = 0) -> int:
    """Return an attribute that is a number, a type or a truth."""
    if value is not None:
        for number, wire, _, begin, end in fields(value, 0, len(value)):
            if wire == VARINT and number in (_INT, _BOOL, _TYPE):
                return _signed(read_varint(value, begin, end)[0])
    return default


def integers(value: Content | None) -> list[int]:
    """Return an attribute that is a list of numbers or types."""
    found: list[int] = []
    for number, _wire, begin, end in _in_list(value):
        if number in (_INT, _BOOL, _TYPE) and value is not None:
            at = begin
            while at < end:
                each, at = read_varint(value, at, end)
                found.append(_signed(each))
    return found


def text(value: Content | None) -> str:
    """Return an attribute that is a text, and "" for another one."""
    if value is not None:
        for number, wire, _, begin, end in fields(value, 0, len(value)):
            if number == _TEXT and wire == BYTES:
                return bytes(value[begin:end]).decode("utf-8", "replace")
    return ""


def texts(value: Content | None) -> list[str]:
    """Return an attribute that is a list of texts."""
    found = ((begin, end) for number, wire, begin, end in _in_list(value) if number == _TEXT and wire == BYTES)
    return [] if value is None else [bytes(value[begin:end]).decode("utf-8", "replace") for begin, end in found]


def shape(value: Content | None) -> Shape:
    """Return an attribute that is a shape; None where there is none."""
    if value is not None:
        for number, wire, _, begin, end in fields(value, 0, len(value)):
            if number == _SHAPE and wire == BYTES:
                return shape_message(value[begin:end])
    return None


def shapes(value: Content | None) -> list[Shape]:
    """Return an attribute that is a list of shapes."""
    found = ((begin, end) for number, wire, begin, end in _in_list(value) if number == _SHAPE and wire == BYTES)
    return [] if value is None else [shape_message(value[begin:end]) for begin, end in found]


def functions(value: Content | None) -> list[str]:
    """Return the names of the functions in an attribute: one, or a list of them."""
    if value is None:
        return []
    own = [
        (begin, end) for number, wire, _, begin, end in fields(value, 0, len(value)) if (number, wire) == (_FUNC, BYTES)
    ]
    listed = [(begin, end) for number, wire, begin, end in _in_list(value) if number == 9 and wire == BYTES]
    return [_function_name(value[begin:end]) for begin, end in (*own, *listed)]


def shape_message(content: Content) -> Shape:
    """Return the shape in a TensorShapeProto."""
    sizes: list[int] = []
    for number, wire, _, begin, end in fields(content, 0, len(content)):
        if number == _UNKNOWN_RANK and wire == VARINT and read_varint(content, begin, end)[0]:
            return None
        if number == _DIM and wire == BYTES:
            size = 0
            for inner, inner_wire, _, at, stop in fields(content, begin, end):
                if inner == 1 and inner_wire == VARINT:
                    size = _signed(read_varint(content, at, stop)[0])
            sizes.append(size)
    return tuple(sizes)


def tensor_shape(value: Content | None) -> Shape:
    """Return the shape of an attribute that is a tensor, without looking at its contents."""
    if value is None:
        return None
    for number, wire, _, begin, end in fields(value, 0, len(value)):
        if number == _TENSOR and wire == BYTES:
            for inner, inner_wire, _, at, stop in fields(value, begin, end):
                if inner == _DIM and inner_wire == BYTES:
                    return shape_message(value[at:stop])
            return ()
    return None


def of_type(number: int) -> bytes:
    """Return an attribute with a data type."""
    return encode_number(_TYPE, number)


def of_integer(value: int) -> bytes:
    """Return an attribute with a number."""
    return encode_number(_INT, value)


def of_bool(value: bool) -> bytes:
    """Return an attribute with a truth."""
    return encode_number(_BOOL, int(value))


def of_text(value: str) -> bytes:
    """Return an attribute with a text."""
    return encode_bytes(_TEXT, value.encode())


def of_texts(values: Iterable[str]) -> bytes:
    """Return an attribute with a list of texts."""
    return encode_bytes(_LIST, b"".join(encode_bytes(_TEXT, value.encode()) for value in values))


def of_shape(sizes: Shape) -> bytes:
    """Return an attribute with a shape."""
    return encode_bytes(_SHAPE, _shape_content(sizes))


def of_shapes(shapes: Iterable[Shape]) -> bytes:
    """Return an attribute with a list of shapes."""
    return encode_bytes(_LIST, b"".join(encode_bytes(_SHAPE, _shape_content(sizes)) for sizes in shapes))


def of_tensor(type_number: int, sizes: Sequence[int], content: bytes) -> bytes:
    """Return an attribute with a tensor, given its bytes."""
    fields_of_tensor = (
        encode_number(1, type_number),
        encode_bytes(2, _shape_content(tuple(sizes))),
        encode_bytes(4, content),
    )
    return encode_bytes(_TENSOR, b"".join(fields_of_tensor))


def _shape_content(sizes: Shape) -> bytes:
    if sizes is None:
        return encode_number(_UNKNOWN_RANK, 1)
    return b"".join(encode_bytes(_DIM, encode_number(1, size)) for size in sizes)


def _function_name(content: Content) -> str:
    for number, wire, _, begin, end in fields(content, 0, len(content)):
        if number == _NAME_OF_FUNCTION and wire == BYTES:
            return bytes(content[begin:end]).decode("utf-8", "replace")
    return ""


def _in_list(value: Content | None) -> list[tuple[int, int, int, int]]:
    """Return number, wire type and place of every field in the lists of an attribute."""
    if value is None:
        return []
    return [
        (inner, inner_wire, at, stop)
        for number, wire, _, begin, end in fields(value, 0, len(value))
        if number == _LIST and wire == BYTES
        for inner, inner_wire, _, at, stop in fields(value, begin, end)
    ]


def _signed(value: int) -> int:
    return value - 2**64 if value >> 63 else value
