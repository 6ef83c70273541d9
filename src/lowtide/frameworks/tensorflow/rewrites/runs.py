"""A sequence of runs as nodes: what runs again is a copy, and every run waits for the one before it."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from lowtide.frameworks.tensorflow.graphs.node_def import NodeDef
from lowtide.frameworks.tensorflow.operators.kinds import BARRIERS
from lowtide.frameworks.tensorflow.reading.body import NodeBody
from lowtide.frameworks.tensorflow.reading.effects import is_view
from lowtide.frameworks.tensorflow.rewrites.names import RECOMPUTED, free_name, node_of, with_node


def nodes_in_order(body: NodeBody, ops: Sequence[int], runs: Sequence[int]) -> list[NodeDef]:
    """Return the nodes of a body so that some run one after the other, in the order of `runs`, and some of those twice.

    `ops` holds all that run. Every run waits for the one before it by a control edge. A run of a node that ran
    before is a copy, `Recomputed/NAME`, and whatever runs after it reads the copy, through copies of the views between.
    Nodes that nobody copies or orders stay as they are, but for those that read an IdentityN: that shows all its inputs
    only when the last of them is there, so that they read what it shows.
    """
    writer = _Writer(_past_barriers(body), set(ops))
    before: str | None = None
    for place in runs:
        before = writer.run(place, before)
    return writer.finish()


def _past_barriers(body: NodeBody) -> NodeBody:
    """Return a body in which nobody reads an IdentityN."""
    nodes, data = list(body.nodes), list(body.data)
    for place, node in enumerate(body.nodes):
        if node.op in BARRIERS or all(body.nodes[source].op not in BARRIERS for source, _ in body.data[place]):
            continue
        inputs, ports = list(node.inputs), list(body.data[place])
        numbers = [number for number, text in enumerate(inputs) if not text.startswith("^")]
        for read, number in enumerate(numbers):
            while body.nodes[ports[read][0]].op in BARRIERS:
                barrier, port = ports[read]
                inputs[number] = [text for text in body.nodes[barrier].inputs if not text.startswith("^")][port]
                ports[read] = body.data[barrier][port]
        nodes[place], data[place] = node.with_inputs(inputs), ports
    return replace(body, nodes=nodes, data=data)


@dataclass(slots=True)
class _Writer:
    body: NodeBody
    ops: set[int]
    taken: set[str] = field(init=False)
    current: dict[int, str] = field(default_factory=dict[int, str])
    """Per op that ran, the node of its last run."""
    views: dict[tuple[int, tuple[str, ...]], str] = field(default_factory=dict[tuple[int, tuple[str, ...]], str])
    changed: dict[int, NodeDef] = field(default_factory=dict[int, NodeDef])
    copies: list[NodeDef] = field(default_factory=list[NodeDef])
    has_copies: bool = False

    def __post_init__(self) -> None:
        self.taken = set(self.body.places)

    def run(self, place: int, before: str | None) -> str:
        """Run a node behind another one, and return the name under which it ran."""
        node = self.body.nodes[place]
        inputs = self._inputs(place) if self.has_copies else list(node.inputs)
        waits = [] if before is None or any(node_of(text) == before for text in inputs) else [before]
        if place not in self.current:
            made = node if inputs == list(node.inputs) else node.with_inputs(inputs)
            self.changed[place] = made.with_controls(waits)
            self.current[place] = node.name
        else:
            name = self._new_name(node.name)
            self.copies.append(node.renamed(name, [*inputs, *(f"^{wait}" for wait in waits)]))
            self.current[place] = name
            self.has_copies = True
        return self.current[place]

    def finish(self) -> list[NodeDef]:
        """Return all nodes: those of the body where they stood, copies behind them."""
        nodes = [self.changed.get(place, node) for place, node in enumerate(self.body.nodes)]
        return [*nodes[self.body.n_arguments :], *self.copies]

    def _inputs(self, place: int) -> list[str]:
        """Return what a node reads now: the last runs of what it reads; what it only waits for stays."""
        return [
            text if text.startswith("^") else with_node(text, self._name(self.body.places[node_of(text)]))
            for text in self.body.nodes[place].inputs
        ]

    def _name(self, place: int) -> str:
        """Return the node that stands for another one now: its last run, or for a view one of what is shown now.

        Views of views are followed without recursion.
        """
        chain = [place]
        while chain[-1] not in self.ops and is_view(self.body.nodes[chain[-1]]) and self.body.data[chain[-1]]:
            chain.append(self.body.data[chain[-1]][0][0])
        root = chain.pop()
        name = self.current.get(root, self.body.nodes[root].name)
        for view in reversed(chain):
            node = self.body.nodes[view]
            inputs = [with_node(text, name) if number == 0 else text for number, text in enumerate(node.inputs)]
            if inputs == list(node.inputs):
                name = node.name
                continue
            key = (view, tuple(inputs))
            if key not in self.views:
                self.views[key] = self._new_name(node.name)
                self.copies.append(node.renamed(self.views[key], inputs))
            name = self.views[key]
        return name

    def _new_name(self, name: str) -> str:
        made = free_name(f"{RECOMPUTED}{name}", self.taken)
        self.taken.add(made)
        return made
