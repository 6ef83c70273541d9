"""Sizes that the runtime carries from Shape through other operators while it infers shapes."""

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from importlib.metadata import PackageNotFoundError, version

from onnx import GraphProto, NodeProto, TensorProto, helper

from lowtide.frameworks.onnx.operators.nodes import NewNames, int_of, ints_of, operator_of, subgraphs_of
from lowtide.frameworks.onnx.shapes.tensors import array_of, short_constants

Sizes = tuple[int, ...]
Shapes = Mapping[str, Sequence[object]]
_FIRST_RELEASE = (1, 24)
"""Of ONNX Runtime that carries sizes."""
_SINCE_OPSET_13 = frozenset({"Cast", "Concat", "Squeeze", "Add", "Sub", "Mul", "Div"})
_ARITHMETIC: Mapping[str, Callable[[int, int], int]] = {
    "Add": int.__add__,
    "Sub": int.__sub__,
    "Mul": int.__mul__,
    "Div": int.__floordiv__,
}


@cache
def carries_sizes() -> bool:
    """Return whether the installed runtime carries sizes; the newest one does."""
    try:
        numbers = version("onnxruntime").split(".")[:2]
    except PackageNotFoundError:
        return True
    return tuple(int(number) for number in numbers if number.isdecimal()) >= _FIRST_RELEASE


def give_carried_sizes(graph: GraphProto, shapes: Shapes, opset: int) -> bool:
    """Make constants of carried sizes where other operators read them; return whether there were any.

    Source: Graph::SaveShapeValuesFromDataPropagation and data_propagation of ONNX Runtime 1.32, measured for each
    operator. Sizes come from Shape of a value whose sizes are all known, never from weights. Each graph is apart.
    """
    constants = short_constants(graph)
    carried: dict[str, Sizes] = {}
    kinds: dict[str, int] = {}
    reads: list[tuple[NodeProto, int, str]] = []
    has_new = False
    for node in graph.node:
        for _, inner in subgraphs_of(node):
            has_new |= give_carried_sizes(inner, shapes, opset)
        found = _carried(node, carried, shapes, constants, opset)
        if found is not None:
            carried[node.output[0]] = found
            kind = kinds.get(node.input[0], TensorProto.INT64)
            kinds[node.output[0]] = int_of(node, "to") if node.op_type == "Cast" else kind
        else:
            reads += [(node, place, name) for place, name in enumerate(node.input) if name in carried]
    if not reads:
        return has_new
    names = NewNames(graph)
    for node, place, name in reads:
        node.input[place] = given = names.new(f"{name}/carried")
        graph.initializer.append(helper.make_tensor(given, kinds[name], [len(carried[name])], carried[name]))
    return True


def _carried(
    node: NodeProto,
    carried: Mapping[str, Sizes],
    shapes: Shapes,
    constants: Mapping[str, TensorProto],
    opset: int,
) -> Sizes | None:
    domain, kind = operator_of(node)
    if domain or (kind in _SINCE_OPSET_13 and opset < 13) or not node.input:
        return None
    if kind == "Shape":
        sizes = shapes.get(node.input[0])
        known = tuple(size for size in sizes or () if isinstance(size, int))
        if sizes is None or len(known) < len(sizes):
            return None
        return known[int_of(node, "start") : int_of(node, "end", len(known))]
    read = [carried.get(name) for name in node.input]
    first, *others = read
    if first is None:
        return None
    if kind == "Cast":
        return first
    if kind == "Concat":
        return None if any(each is None for each in others) else sum((each or () for each in read), ())
    if kind in _ARITHMETIC and len(others) == 1 and others[0] is not None:
        return _computed(kind, first, others[0])
    given = _constant(node.input[1], constants) if len(node.input) > 1 else ints_of(node, "axes")
    if given is None:
        return None
    if kind == "Gather":
        is_one = len(given) == 1 and -len(first) <= given[0] < len(first)
        return (first[given[0]],) if is_one else None
    if kind == "Squeeze":
        return first if len(first) == 1 else _without_axes(first, given)
    return _with_axes(first, given) if kind == "Unsqueeze" else None


def _computed(kind: str, one: Sizes, other: Sizes) -> Sizes | None:
    if len(one) != len(other) or (kind == "Div" and (len(one) > 1 or 0 in other)):
        return None
    return tuple(map(_ARITHMETIC[kind], one, other))


def _constant(name: str, constants: Mapping[str, TensorProto]) -> list[int] | None:
    """Return the numbers of a constant of rank 0 or 1."""
    tensor = constants.get(name)
    if tensor is None or len(tensor.dims) > 1:
        return None
    return [int(number) for number in array_of(tensor).reshape(-1).tolist()]


def _without_axes(sizes: Sizes, axes: Sequence[int]) -> Sizes:
    """Return sizes as the runtime squeezes them: as if each were a dimension."""
    places = {axis % len(sizes) for axis in axes}
    return tuple(size for place, size in enumerate(sizes) if (place not in places if places else size != 1))


def _with_axes(sizes: Sizes, axes: Sequence[int]) -> Sizes:
    if len(sizes) == 1:
        return sizes
    places = {axis % len(sizes) for axis in axes}
    return tuple(each for place, size in enumerate(sizes) for each in ((1, size) if place in places else (size,)))
