"""The steps of a plan as nodes: what runs again is a copy, and every run waits for the one before it."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from lowtide.engine.plan import StepKind
from lowtide.frameworks.tensorflow.graphs.node_def import NodeDef
from lowtide.frameworks.tensorflow.operators.kinds import BARRIERS
from lowtide.frameworks.tensorflow.reading.body import NodeBody, Port
from lowtide.frameworks.tensorflow.reading.effects import is_view
from lowtide.frameworks.tensorflow.rewrites.names import (
    RECOMPUTED,
    SWAPPED_IN,
    SWAPPED_OUT,
    free_name,
    node_of,
    with_node,
)
from lowtide.frameworks.tensorflow.rewrites.swap import copy_back, copy_out
from lowtide.frameworks.tensorflow.shapes.sizes import output_types


@dataclass(frozen=True, slots=True)
class PortStep:
    """A step of a plan on an output: copied out, freed on its device, or copied back."""

    kind: StepKind
    port: Port


def nodes_in_order(body: NodeBody, ops: Sequence[int], steps: Sequence[int | PortStep]) -> list[NodeDef]:
    """Return the nodes of a body so that some run one after the other, in the order of steps, and some of those twice.

    `ops` holds all that run. Every run waits for the one before it by a control edge. A run of a node that ran
    before is a copy, `Recomputed/NAME`, and whatever runs after it reads the copy, through copies of the views between.
    What is copied to the host leaves by `swap_out_NAME_OUTPUT`, which waits for the run before it; the run that comes
    after it was freed waits until it has left. `swap_in_NAME_OUTPUT` waits for the run before it, and is what is read
    from then on.
    Nodes that nobody copies or orders stay as they are, but for those that read an IdentityN: that shows all its inputs
    only when the last of them is there, so that they read what it shows.
    """
    writer = _Writer(_past_barriers(body), set(ops))
    before: str | None = None
    for step in steps:
        if isinstance(step, int):
            before = writer.run(step, before)
        else:
            writer.move(step, before)
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
    on_host: dict[Port, str] = field(default_factory=dict[Port, str])
    """Per output that was copied out, the node that did it."""
    leaving: dict[Port, str] = field(default_factory=dict[Port, str])
    """Of these, what nobody waited for yet."""
    back: dict[Port, str] = field(default_factory=dict[Port, str])
    """Per output that came back, the node that gives it now."""
    left: list[str] = field(default_factory=list[str])
    """What the next run waits for, and all that comes back until then: copies of what was freed."""
    views: dict[tuple[int, tuple[str, ...]], str] = field(default_factory=dict[tuple[int, tuple[str, ...]], str])
    changed: dict[int, NodeDef] = field(default_factory=dict[int, NodeDef])
    made: list[NodeDef] = field(default_factory=list[NodeDef])
    is_renamed: bool = False
    """Whether anything is read under another name than in the body."""

    def __post_init__(self) -> None:
        self.taken = set(self.body.places)

    def run(self, place: int, before: str | None) -> str:
        """Run a node behind another one, and return the name under which it ran."""
        node = self.body.nodes[place]
        inputs = self._inputs(place) if self.is_renamed else list(node.inputs)
        read = {node_of(text) for text in inputs}
        waits = [each for each in (*([] if before is None else [before]), *self.left) if each not in read]
        self.left = []
        if place not in self.current:
            made = node if inputs == list(node.inputs) else node.with_inputs(inputs)
            self.changed[place] = made.with_controls(waits)
            self.current[place] = node.name
        else:
            name = self._new_name(f"{RECOMPUTED}{node.name}")
            self.made.append(node.renamed(name, [*inputs, *(f"^{wait}" for wait in waits)]))
            self.current[place] = name
            self.is_renamed = True
            self.back = {port: each for port, each in self.back.items() if port[0] != place}
        return self.current[place]

    def move(self, step: PortStep, before: str | None) -> None:
        """Copy an output to the host or back behind a run, or note that its device holds it no longer."""
        port = step.port
        node = self.body.nodes[port[0]]
        kind, group = output_types(node)[port[1]], f"{node.name}_{port[1]}"
        waits = [] if before is None else [before]
        if step.kind == StepKind.COPY_OUT:
            name = self._new_name(f"{SWAPPED_OUT}{group}")
            self.made.append(copy_out(name, self._read(_text_of(node, port), port), waits, kind, group, node.device))
            self.on_host[port] = self.leaving[port] = name
        elif step.kind == StepKind.COPY_IN:
            name = self._new_name(f"{SWAPPED_IN}{group}")
            self.made.append(copy_back(name, self.on_host[port], [*waits, *self.left], kind, group, node.device))
            self.back[port] = name
            self.is_renamed = True
        elif port in self.leaving:
            self.left.append(self.leaving.pop(port))

    def finish(self) -> list[NodeDef]:
        """Return all nodes: those of the body where they stood, copies behind them."""
        nodes = [self.changed.get(place, node) for place, node in enumerate(self.body.nodes)]
        return [*nodes[self.body.n_arguments :], *self.made]

    def _inputs(self, place: int) -> list[str]:
        """Return what a node reads now: the last runs of what it reads; what it only waits for stays."""
        ports = iter(self.body.data[place])
        return [
            text if text.startswith("^") else self._read(text, next(ports)) for text in self.body.nodes[place].inputs
        ]

    def _read(self, text: str, port: Port) -> str:
        """Return how an output is read now: from its last run, from where it came back, or from a view of these.

        Views of views are followed without recursion.
        """
        chain: list[int] = []
        texts = [text]
        while port[0] not in self.ops and is_view(self.body.nodes[port[0]]) and self.body.data[port[0]]:
            chain.append(port[0])
            texts.append(self.body.nodes[port[0]].inputs[0])
            port = self.body.data[port[0]][0]
        root = self.body.nodes[port[0]].name
        now = self.back.get(port) or with_node(texts.pop(), self.current.get(port[0], root))
        for view in reversed(chain):
            now = with_node(texts.pop(), self._view(view, now))
        return now

    def _view(self, view: int, text: str) -> str:
        """Return the name of a view that reads a text first: itself, or a copy of it."""
        node = self.body.nodes[view]
        inputs = (text, *node.inputs[1:])
        if inputs == tuple(node.inputs):
            return node.name
        key = (view, inputs)
        if key not in self.views:
            self.views[key] = self._new_name(f"{RECOMPUTED}{node.name}")
            self.made.append(node.renamed(self.views[key], inputs))
        return self.views[key]

    def _new_name(self, wanted: str) -> str:
        made = free_name(wanted, self.taken)
        self.taken.add(made)
        return made


def _text_of(node: NodeDef, port: Port) -> str:
    return node.name if not port[1] else f"{node.name}:{port[1]}"
