"""Workspaces of convolutions: copied windows, pointers to them, integer sums."""

import math
from collections.abc import Callable, Mapping, Sequence

from onnx import NodeProto, TensorProto, TypeProto

from lowtide.frameworks.onnx.operators.nodes import attribute_of, int_of, ints_of
from lowtide.frameworks.onnx.operators.tables import Operator
from lowtide.frameworks.onnx.shapes.tensors import bytes_like, shape_in

Types = Mapping[str, TypeProto]

_SEGMENT_BYTES = 2**16
"""Copied windows per thread; one thread is counted."""
_POINTER = 8
_SUM = 4
"""Bytes of an integer sum."""
_PACKED_INPUTS, _LEAST_PACKED_FILTERS, _PACKED_GROUPS = 4, 16, 16
"""Channels per block of kernels for symmetric weights."""
_PACKED_FILTERS_EVERYWHERE = 8
"""Filters per block with any instruction set; some have half."""


def _of_floats(node: NodeProto, types: Types) -> int:
    """Return all windows if there are fewer positions than filters, else a segment; 0 for plain pointwise filters."""
    result, filters = shape_in(types, node.output[0]), shape_in(types, node.input[1])
    if result is None or filters is None or types[node.output[0]].tensor_type.elem_type != TensorProto.FLOAT:
        return 0
    window, places = math.prod(filters[2:]), math.prod(result[2:])
    auto_pad = attribute_of(node, "auto_pad")
    is_plain = auto_pad is None or auto_pad.s in (b"NOTSET", b"VALID")
    if window == 1 and is_plain and not any(ints_of(node, "pads")) and not _strides(node):
        return 0
    if filters[0] // int_of(node, "group", 1) > places:
        return 4 * places * window * filters[1]
    return _SEGMENT_BYTES


def _transposed(node: NodeProto, types: Types) -> int:
    """Return a group's products for one image."""
    image, filters = shape_in(types, node.input[0]), shape_in(types, node.input[1])
    if image is None or filters is None:
        return 0
    return bytes_like(types, node.input[0], math.prod(filters[1:]) * math.prod(image[2:]))


def _of_integers(node: NodeProto, types: Types) -> int:
    """Return the workspace of channels-last x86 kernels: windows of an image or pointers to them, and 32-bit sums.

    Symmetric kernels have no sums, but pointers for all images.
    """
    result, filters = shape_in(types, node.output[0]), shape_in(types, node.input[3])
    if result is None or filters is None or len(result) < 3 or len(filters) < 3 or not int_of(node, "channels_last"):
        return 0
    window, is_depthwise = math.prod(filters[2:]), _is_depthwise(node, filters)
    is_symmetric = _is_symmetric(node, filters, types)
    is_point = window == 1 and not is_depthwise and not _strides(node)
    if is_symmetric:
        return 0 if is_point else math.prod(result[:-1]) * _POINTER * window
    windows = _POINTER * window if is_depthwise else 0 if is_point else window * filters[1]
    return math.prod(result[1:-1]) * (windows + _SUM * filters[0])


def has_sums_by_processor(node: NodeProto, types: Types) -> bool:
    """Return whether sums depend on the processor."""
    filters = shape_in(types, node.input[3])
    if filters is None or len(filters) < 3 or _is_depthwise(node, filters) or not _is_symmetric(node, filters, types):
        return False
    return filters[0] % _PACKED_FILTERS_EVERYWHERE > 0


def _is_depthwise(node: NodeProto, filters: Sequence[int]) -> bool:
    return int_of(node, "group", 1) > 1 and filters[1] == 1 and filters[0] == int_of(node, "group", 1)


def _is_symmetric(node: NodeProto, filters: Sequence[int], types: Types) -> bool:
    """Return whether kernels for unsigned inputs and signed weights in whole blocks apply."""
    kinds = types[node.input[0]].tensor_type.elem_type, types[node.input[3]].tensor_type.elem_type
    if kinds != (TensorProto.UINT8, TensorProto.INT8):
        return False
    group = int_of(node, "group", 1)
    if _is_depthwise(node, filters):
        return group % _PACKED_GROUPS == 0
    packs = filters[0] % _PACKED_INPUTS == 0 and filters[0] >= _LEAST_PACKED_FILTERS
    return group == 1 and filters[1] % _PACKED_INPUTS == 0 and packs


def _strides(node: NodeProto) -> bool:
    return any(stride > 1 for stride in ints_of(node, "strides"))


CONVOLUTIONS: Mapping[Operator, Callable[[NodeProto, Types], int]] = {
    ("", "Conv"): _of_floats,
    ("com.microsoft", "FusedConv"): _of_floats,
    ("", "ConvTranspose"): _transposed,
    ("com.microsoft", "QLinearConv"): _of_integers,
}
"""Workspace bytes, 0 if a shape is unknown; counted in ONNX Runtime 1.31."""
