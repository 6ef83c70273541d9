"""What a caller knows of blobs, by name: shapes, types and shapes, or bytes."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from lowtide.core.errors import UnsupportedError, UsageError
from lowtide.frameworks.caffe2.shapes.tensor_type import BYTES_OF, ONNX_TYPES, TensorType

Known = Mapping[str, Any]
"""By blob: a shape [8, 3, 224, 224] of 32-bit floats, a type and a shape [1, [8, 3]] or ["int64", [8]] (numbers are
ONNX's, as in value_info.json), an array, or bytes."""
_LARGEST = 2**62


@dataclass(frozen=True, slots=True)
class KnownBlobs:
    """What is known of blobs before anything is inferred."""

    types: dict[str, TensorType] = field(default_factory=dict[str, TensorType])
    sizes: dict[str, int] = field(default_factory=dict[str, int])
    """Bytes of blobs whose shape is not known."""


def known_blobs(known: Known, dims: Mapping[str, int], blobs: Iterable[str]) -> KnownBlobs:
    """Return what a caller says of the blobs of a net; `dims` binds sizes one by one, as in "data.0".

    Raises UsageError for an entry that says nothing, a dimension of no blob, and one that is left out.
    """
    result = KnownBlobs()
    for blob, value in known.items():
        entry = _entry(blob, value)
        if isinstance(entry, TensorType):
            result.types[blob] = entry
        else:
            result.sizes[blob] = entry
    names = set(blobs)
    bound: dict[str, dict[int, int]] = {}
    for name, size in dims.items():
        blob, _, axis = name.rpartition(".")
        if blob not in names or not (axis.isascii() and axis.isdigit() and len(axis) < 3):
            raise UsageError(f"no dimension {name!r}; a dimension is BLOB.AXIS, with a blob of the net: data.0")
        bound.setdefault(blob, {})[int(axis)] = size
    for blob, sizes in bound.items():
        given = result.types.get(blob)
        rank = max(max(sizes) + 1, len(given.shape) if given else 0)
        merged = [
            sizes.get(axis, given.shape[axis] if given and axis < len(given.shape) else -1) for axis in range(rank)
        ]
        if -1 in merged:
            raise UsageError(
                f"dimension {blob}.{merged.index(-1)} has no size and {blob}.{rank - 1} has; give them all"
            )
        result.types[blob] = TensorType(tuple(merged), given.dtype if given else "float32")
    return result


def require_known(blobs: Iterable[str], known: KnownBlobs, where: str) -> None:
    """Raise UnsupportedError that names the blobs nothing is known of, with the ways to tell."""
    missing = [blob for blob in blobs if blob not in known.types and blob not in known.sizes]
    if missing:
        listed = ", ".join(repr(blob) for blob in missing[:20]) + (" and others" if len(missing) > 20 else "")
        raise UnsupportedError(
            f"{where}: a NetDef has no shapes, and none is given for {listed}; write them to a file beside it, "
            'NAME.value_info.json ({"blob": [1, [8, 3]]}), name a blob\'s sizes by --dim BLOB.0=8, or in Python '
            "shapes={...}"
        )


def _entry(blob: str, value: Any) -> TensorType | int:
    if isinstance(value, TensorType):
        return value
    if _is_size(value):
        return int(value)
    if hasattr(value, "shape") and hasattr(value, "dtype") and str(value.dtype) in BYTES_OF:
        return TensorType(tuple(int(size) for size in value.shape), str(value.dtype))
    kind: Any = "float32"
    shape = value
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        items = cast("Sequence[Any]", value)
        if len(items) == 2 and isinstance(items[1], Sequence):
            kind, shape = items
    kind = ONNX_TYPES.get(kind, kind) if isinstance(kind, int) else kind
    is_shape = isinstance(shape, Sequence) and not isinstance(shape, str | bytes)
    if not is_shape or kind not in BYTES_OF or not all(_is_size(size) for size in cast("Sequence[Any]", shape)):
        raise UsageError(
            f"blob {blob!r}: {value!r} is neither a shape, nor [type, shape], nor bytes; give one of these"
        )
    return TensorType(tuple(int(size) for size in cast("Sequence[int]", shape)), kind)


def _is_size(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < _LARGEST
