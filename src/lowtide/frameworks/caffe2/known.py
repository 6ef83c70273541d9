"""Shapes and sizes known before inference.

Later sources win: init net, arguments of the net, value_info file, caller, bound dimensions.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import msgspec

from lowtide.core.errors import MalformedInputError, UnsupportedError, UsageError, named_type
from lowtide.core.files import read_bytes
from lowtide.frameworks.caffe2.nets.named import named_net
from lowtide.frameworks.caffe2.shapes.infer import last_types
from lowtide.frameworks.caffe2.shapes.tensor_type import BYTES_OF, CAFFE2_TYPES, ONNX_TYPES, TensorType
from lowtide.frameworks.caffe2.sharing.named_net import is_size

Known = Mapping[str, Any]
"""By blob: a shape [8, 3, 224, 224] of float32, a type and shape [1, [8, 3]] (ONNX's number) or ["int64", [8]], an
array, or bytes."""
_SHAPE_ARGUMENTS = ("shape_info", "qshape_info")


@dataclass(frozen=True, slots=True)
class KnownBlobs:
    types: dict[str, TensorType] = field(default_factory=dict[str, TensorType])
    sizes: dict[str, int] = field(default_factory=dict[str, int])
    """Bytes of blobs of unknown shape."""


def known_of(net: Any, init_net: Any | None, known: Known, dims: Mapping[str, int]) -> KnownBlobs:
    """Return types and sizes from all sources; `dims` binds single sizes, as in "data.0".

    Raises UsageError for invalid entries and for wrong or missing dimensions.
    """
    found: dict[str, Any] = {} if init_net is None else dict(last_types(init_net, {}))
    found |= _types_in_arguments(net)
    found |= known
    result = KnownBlobs()
    for blob, value in found.items():
        entry = _entry(blob, value)
        if isinstance(entry, TensorType):
            result.types[blob] = entry
        else:
            result.sizes[blob] = entry
    named = named_net(net)
    _bind(result, dims, {*named.external_inputs, *named.blobs})
    return result


def _bind(known: KnownBlobs, dims: Mapping[str, int], blobs: set[str]) -> None:
    bound: dict[str, dict[int, int]] = {}
    for name, size in dims.items():
        blob, _, axis = name.rpartition(".")
        if blob not in blobs or not (axis.isascii() and axis.isdigit() and len(axis) < 3):
            raise UsageError(f"no dimension {name!r}; a dimension is BLOB.AXIS, with a blob of the net: data.0")
        bound.setdefault(blob, {})[int(axis)] = size
    for blob, sizes in bound.items():
        given = known.types.get(blob)
        rank = max(max(sizes) + 1, len(given.shape) if given else 0)
        merged = [
            sizes.get(axis, given.shape[axis] if given and axis < len(given.shape) else -1) for axis in range(rank)
        ]
        if -1 in merged:
            raise UsageError(
                f"dimension {blob}.{merged.index(-1)} has no size and {blob}.{rank - 1} has; give them all"
            )
        known.types[blob] = TensorType(tuple(merged), given.dtype if given else "float32")


def require_known(blobs: Iterable[str], known: KnownBlobs, where: str) -> None:
    missing = [blob for blob in blobs if blob not in known.types and blob not in known.sizes]
    if missing:
        listed = ", ".join(repr(blob) for blob in missing[:20]) + (" and others" if len(missing) > 20 else "")
        raise UnsupportedError(
            f"{where}: no shapes for {listed}; give them in NAME.value_info.json "
            '({"blob": [1, [8, 3]]}), by --dim BLOB.0=8, or in Python by shapes={...}'
        )


def parameters_of(net: Any, init_net: Any | None, parameters: Iterable[str]) -> frozenset[str]:
    """Return the given parameters and those of the init net; raises UsageError for a name the net does not read."""
    named = named_net(net)
    outer = {*named.external_inputs, *(blob for reads in named.reads for blob in reads)}
    missing = sorted(set(parameters) - outer)
    if missing:
        raise UsageError(f"the net does not read the parameter {missing[0]!r}; name external inputs")
    made = [blob for op in init_net.op for blob in op.output] if init_net is not None else []
    return frozenset(outer.intersection((*made, *parameters)))


def init_file(path: Path) -> Path | None:
    found = path.with_name(path.name.replace("predict_net", "init_net"))
    return found if "predict_net" in path.stem and found.is_file() else None


def known_beside(net: Path) -> Known:
    """Return the entries of the value_info file beside a net, if any; raises MalformedInputError."""
    names = [f"{net.stem}.value_info.json"]
    if "predict_net" in net.stem:
        names.append(net.stem.replace("predict_net", "value_info") + ".json")
    path = next((path for path in map(net.with_name, names) if path.is_file()), None)
    if path is None:
        return {}
    try:
        found: Any = msgspec.json.decode(read_bytes(path))
    except (msgspec.DecodeError, RecursionError) as error:
        raise MalformedInputError(f"{path}: no valid JSON ({error}); write {{blob: [type, [sizes]]}}") from None
    if not isinstance(found, dict):
        raise MalformedInputError(f"{path}: holds {named_type(found)}; write {{blob: [type, [sizes]]}}")
    return cast("Known", found)


def _types_in_arguments(net: Any) -> dict[str, TensorType]:
    """Return the types in arguments that Caffe2's BackendTransformerBase and Glow write."""
    arguments = [argument for argument in net.arg if argument.name.removeprefix("input_") in _SHAPE_ARGUMENTS]
    tensors = (tensor for argument in arguments for tensor in (*argument.tensors, *argument.qtensors))
    return {
        tensor.name: TensorType(tuple(tensor.dims), CAFFE2_TYPES[tensor.data_type])
        for tensor in tensors
        if tensor.data_type in CAFFE2_TYPES and min(tensor.dims, default=0) >= 0
    }


def _entry(blob: str, value: Any) -> TensorType | int:
    if isinstance(value, TensorType):
        return value
    if is_size(value):
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
    if not is_shape or kind not in BYTES_OF or not all(is_size(size) for size in cast("Sequence[Any]", shape)):
        raise UsageError(
            f"blob {blob!r}: {value!r} is neither a shape, nor [type, shape], nor bytes; give one of these"
        )
    return TensorType(tuple(int(size) for size in cast("Sequence[int]", shape)), kind)
