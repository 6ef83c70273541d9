"""Names that a graph has, and new ones beside them."""

from onnx import GraphProto

from lowtide.frameworks.onnx.operators.nodes import all_nodes, weight_names


class NewNames:
    """Names that no value, weight or node of a graph has yet, nor of a graph inside."""

    def __init__(self, graph: GraphProto) -> None:
        """Take the names that are there."""
        self._taken = {name for node in all_nodes(graph) for name in (node.name, *node.input, *node.output)}
        self._taken |= {value.name for value in (*graph.input, *graph.output)} | set(weight_names(graph))

    def new(self, wanted: str) -> str:
        """Return the name that is wanted or, where something has it, one that begins so; nothing else gets it later."""
        name, number = wanted, 2
        while name in self._taken:
            name, number = f"{wanted}/{number}", number + 1
        self._taken.add(name)
        return name
