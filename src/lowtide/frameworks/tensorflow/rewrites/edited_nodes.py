"""Rewritten nodes and their names."""

from collections.abc import Collection, Iterable, Sequence

from lowtide.frameworks.tensorflow.graphs.node_def import NodeDef

RECOMPUTED, TRIGGER = "Recomputed/", "RecomputeTrigger/"
SWAPPED_OUT, SWAPPED_IN = "swap_out_", "swap_in_"


def node_of(text: str) -> str:
    """Return the node that an input names."""
    return text.removeprefix("^").partition(":")[0]


def with_node(text: str, name: str) -> str:
    """Return an input text with another node."""
    control = "^" if text.startswith("^") else ""
    _, colon, port = text.removeprefix("^").partition(":")
    return f"{control}{name}{colon}{port}"


def free_name(wanted: str, taken: Collection[str]) -> str:
    """Return `wanted`, numbered if taken."""
    name, number = wanted, 1
    while name in taken:
        name = f"{wanted}_{number}"
        number += 1
    return name


class EditedNodes:
    """The nodes of a graph, with changes. New nodes come last."""

    def __init__(self, nodes: Iterable[NodeDef]) -> None:
        self._nodes = {node.name: node for node in nodes}
        self._inputs: dict[str, list[str]] = {}
        self.edits = 0

    def __contains__(self, name: str) -> bool:
        return name in self._nodes

    def node(self, name: str) -> NodeDef:
        """Return a node without later changes to its inputs."""
        return self._nodes[name]

    def inputs(self, name: str) -> Sequence[str]:
        return self._inputs.get(name, self._nodes[name].inputs)

    def add(self, node: NodeDef) -> None:
        """Add or replace a node."""
        self.edits += 1
        self._inputs.pop(node.name, None)
        self._nodes[node.name] = node

    def set_input(self, name: str, number: int, text: str) -> None:
        self._changed(name)[number] = text

    def wait_for(self, name: str, other: str) -> None:
        if all(node_of(text) != other for text in self.inputs(name)):
            self._changed(name).append(f"^{other}")

    def set_attribute(self, name: str, attribute: str, value: bytes) -> None:
        self._nodes[name] = self._nodes[name].with_attributes({attribute: value})

    def finish(self) -> list[NodeDef]:
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
