"""Whether a model's own functions can be expanded: no recursion, and no growth beyond all measure."""

from collections.abc import Iterable, Mapping

from onnx import ModelProto, NodeProto

from lowtide.core.errors import MalformedInputError, UnsupportedError
from lowtide.frameworks.onnx.operators.nodes import all_nodes

MOST_NODES = 10_000_000
"""A model that expands to more nodes is refused: a few dozen functions that call one another twice reach that."""
MOST_DEPTH = 200
"""Calls nested deeper than this are refused: expansion is recursive."""

_Key = tuple[str, str]


def check_functions(model: ModelProto) -> None:
    """Raise MalformedInputError for recursive functions, UnsupportedError for those that expand to too much. O(n)."""
    bodies = {(f.domain, f.name): _calls(all_nodes(f)) for f in model.functions}
    nodes: dict[_Key, int] = {}
    depth: dict[_Key, int] = {}
    for root in bodies:
        stack: list[tuple[_Key, bool]] = [(root, False)]
        active: set[_Key] = set()
        while stack:
            key, leaving = stack.pop()
            if leaving:
                active.discard(key)
                nodes[key] = sum(count * nodes.get(callee, 1) for callee, count in bodies[key].items())
                depth[key] = 1 + max((depth.get(callee, 0) for callee in bodies[key]), default=0)
            elif key in active:
                raise MalformedInputError(f"function {key[1]!r} calls itself; ONNX functions must not be recursive")
            elif key in bodies and key not in nodes:
                active.add(key)
                stack.append((key, True))
                stack.extend((callee, False) for callee in bodies[key])
    total = sum(count * nodes.get(key, 1) for key, count in _calls(all_nodes(model.graph)).items())
    if max(total, max(nodes.values(), default=0)) > MOST_NODES or max(depth.values(), default=0) > MOST_DEPTH:
        raise UnsupportedError(
            f"the model's functions expand to more than {MOST_NODES} nodes or {MOST_DEPTH} levels; inline them first"
        )


def _calls(nodes: Iterable[NodeProto]) -> Mapping[_Key, int]:
    counts: dict[_Key, int] = {}
    for node in nodes:
        key = (node.domain, node.op_type)
        counts[key] = counts.get(key, 0) + 1
    return counts
