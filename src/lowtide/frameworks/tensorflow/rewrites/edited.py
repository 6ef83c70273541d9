"""Nodes while they are rewritten: inputs and attributes change in place, what is not touched stays as it was read."""

from collections.abc import Iterable, Sequence

from lowtide.frameworks.tensorflow.graphs.node_def import NodeDef
from lowtide.frameworks.tensorflow.rewrites.names import node_of


class EditedNodes:
    """The nodes of a graph by name; new ones come last."""

    def __init__(self, nodes: Iterable[NodeDef]) -> None:
        self._nodes = {node.name: node for node in nodes}
        self._inputs: dict[str, list[str]] = {}
        self.edits = 0
        """How often a node or an edge was added or changed; attributes do not count."""

    def __contains__(self, name: str) -> bool:
        return name in self._nodes

    def node(self, name: str) -> NodeDef:
        """Return a node as it was added, whatever its inputs are now."""
        return self._nodes[name]

    def inputs(self, name: str) -> Sequence[str]:
        """Return the inputs of a node as they are now."""
        return self._inputs.get(name, self._nodes[name].inputs)

    def add(self, node: NodeDef) -> None:
        """Add a node, or put it in the place of the one of its name."""
        self.edits += 1
        self._inputs.pop(node.name, None)
        self._nodes[node.name] = node

    def set_input(self, name: str, number: int, text: str) -> None:
        """Make a node read something else."""
        self._changed(name)[number] = text

    def wait_for(self, name: str, other: str) -> None:
        """Make a node wait for another one, unless it does."""
        if all(node_of(text) != other for text in self.inputs(name)):
            self._changed(name).append(f"^{other}")

    def set_attribute(self, name: str, attribute: str, value: bytes) -> None:
        """Give a node an attribute."""
        self._nodes[name] = self._nodes[name].with_attributes({attribute: value})

    def finish(self) -> list[NodeDef]:
        """Return all nodes; one that only waits for more keeps its own message at its front."""
        return [self._finished(node) for node in self._nodes.values()]

    def _changed(self, name: str) -> list[str]:
        self.edits += 1
        return self._inputs.setdefault(name, list(self._nodes[name].inputs))

    def _finished(self, node: NodeDef) -> NodeDef:
        inputs, before = self._inputs.get(node.name), list(node.inputs)
        if inputs is None or inputs == before:
            return node
        more = inputs[len(before) :]
        if inputs[: len(before)] == before:
            return node.with_controls([node_of(text) for text in more])
        return node.with_inputs(inputs)
