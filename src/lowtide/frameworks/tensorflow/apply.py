"""Apply a plan to nodes."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from lowtide.core.errors import FingerprintError, UnsupportedError
from lowtide.engine.analysis import simulate
from lowtide.engine.plan import HOME, Plan, StepKind, verify
from lowtide.frameworks.tensorflow.graphs.graph_def import GraphDef
from lowtide.frameworks.tensorflow.graphs.node_def import NodeDef
from lowtide.frameworks.tensorflow.operators import BARRIERS, COPY_BACK, COPY_OUT, VIEWS
from lowtide.frameworks.tensorflow.reading.body import NodeBody, Port
from lowtide.frameworks.tensorflow.reading.translation import TensorflowTranslation
from lowtide.frameworks.tensorflow.rewrites.edited_nodes import (
    RECOMPUTED,
    SWAPPED_IN,
    SWAPPED_OUT,
    free_name,
    node_of,
    with_node,
)
from lowtide.frameworks.tensorflow.rewrites.memory_rewrites import copy_node
from lowtide.frameworks.tensorflow.shapes import output_types


@dataclass(frozen=True, slots=True)
class PortStep:
    """A copy or free of an output."""

    kind: StepKind
    port: Port


def planned_graph(graph: GraphDef, translation: TensorflowTranslation, plan: Plan) -> GraphDef:
    """Return the graph that follows a plan; see `TensorflowModel.apply`.

    Offloads are `swap_out_NAME_OUTPUT` and `swap_in_NAME_OUTPUT`. A function called with several sizes follows its plan
    of the highest peak.
    """
    _check_plan(translation, plan)
    verify(translation.graph, plan, check_capacity=False)
    made = graph.with_nodes(_ordered(translation, plan))
    for name, (inner, its_plan) in sorted(_planned_functions(translation, plan).items()):
        made = made.with_function(graph.functions[name].with_nodes(_ordered(inner, its_plan)))
    return made


def _ordered(translation: TensorflowTranslation, plan: Plan) -> list[NodeDef]:
    steps = _joined_pairs(list(_steps(translation, plan)), translation.pairs)
    return _nodes_in_order(translation.body, translation.nodes, steps)


def _steps(translation: TensorflowTranslation, plan: Plan) -> Iterator[int | PortStep]:
    for kind, target, space in zip(plan.kinds.tolist(), plan.targets.tolist(), plan.spaces.tolist(), strict=True):
        if kind == StepKind.RUN:
            yield translation.nodes[target]
        elif kind != StepKind.FREE or space in (HOME, int(translation.graph.buffer_spaces[target])):
            yield PortStep(StepKind(kind), translation.ports[int(target)])


def _joined_pairs(steps: Sequence[int | PortStep], pairs: dict[int, int]) -> list[int | PortStep]:
    later = {other: place for place, other in pairs.items()}
    joined: list[int | PortStep] = []
    for step in steps:
        if isinstance(step, int) and step in pairs:
            continue
        joined.append(step)
        if isinstance(step, int) and step in later:
            joined.append(later[step])
    return joined


def _planned_functions(translation: TensorflowTranslation, plan: Plan) -> dict[str, tuple[TensorflowTranslation, Plan]]:
    plans: dict[str, Plan] = {}
    waiting = [plan]
    while waiting:
        callees = waiting.pop().callees
        waiting += [inner for name, inner in callees.items() if name not in plans]
        plans.update(callees)
    found: dict[str, tuple[TensorflowTranslation, Plan]] = {}
    most: dict[str, int] = {}
    for name, inner in sorted(plans.items()):
        called = translation.called[name]
        _check_plan(called.translation, inner)
        needs = sum(simulate(called.translation.graph, inner).peak_bytes.values())
        if needs > most.get(called.function, -1):
            most[called.function] = needs
            found[called.function] = called.translation, inner
    return {
        name: (inner, its_plan)
        for name, (inner, its_plan) in found.items()
        if its_plan.order().tolist() != list(range(inner.graph.n_ops))
    }


def _check_plan(translation: TensorflowTranslation, plan: Plan) -> None:
    if plan.graph_fingerprint != translation.graph.fingerprint:
        raise FingerprintError(
            "the plan belongs to another graph; plan this graph with the same feeds, fetches, shapes and --dim sizes"
        )


def _nodes_in_order(body: NodeBody, ops: Sequence[int], steps: Sequence[int | PortStep]) -> list[NodeDef]:
    """Return nodes in the order of `steps`.

    An IdentityN waits for all its inputs, so its readers read these instead.
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
    on_host: dict[Port, str] = field(default_factory=dict[Port, str])
    leaving: dict[Port, str] = field(default_factory=dict[Port, str])
    """Copies out of outputs not freed yet."""
    back: dict[Port, str] = field(default_factory=dict[Port, str])
    left: list[str] = field(default_factory=list[str])
    """Copies out that the next run waits for."""
    views: dict[tuple[int, tuple[str, ...]], str] = field(default_factory=dict[tuple[int, tuple[str, ...]], str])
    changed: dict[int, NodeDef] = field(default_factory=dict[int, NodeDef])
    made: list[NodeDef] = field(default_factory=list[NodeDef])
    is_renamed: bool = False

    def __post_init__(self) -> None:
        self.taken = set(self.body.places)

    def run(self, place: int, before: str | None) -> str:
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
        port = step.port
        if step.kind == StepKind.FREE:
            if port in self.leaving:
                self.left.append(self.leaving.pop(port))
            return
        node = self.body.nodes[port[0]]
        types, group = output_types(node), f"{node.name}_{port[1]}"
        if port[1] >= len(types):
            raise UnsupportedError(f"the type of output {port[1]} of {node.name!r} is unknown; plan without offload")
        kind = types[port[1]]
        waits = [] if before is None else [before]
        if step.kind == StepKind.COPY_OUT:
            name = self._new_name(f"{SWAPPED_OUT}{group}")
            source = self._read(node.name if not port[1] else f"{node.name}:{port[1]}", port)
            self.made.append(copy_node(name, COPY_OUT, source, waits, kind, group, node.device))
            self.on_host[port] = self.leaving[port] = name
        else:
            name = self._new_name(f"{SWAPPED_IN}{group}")
            waits += self.left
            self.made.append(copy_node(name, COPY_BACK, self.on_host[port], waits, kind, group, node.device))
            self.back[port] = name
            self.is_renamed = True

    def finish(self) -> list[NodeDef]:
        nodes = [self.changed.get(place, node) for place, node in enumerate(self.body.nodes)]
        return [*nodes[self.body.n_arguments :], *self.made]

    def _inputs(self, place: int) -> list[str]:
        ports = iter(self.body.data[place])
        return [
            text if text.startswith("^") else self._read(text, next(ports)) for text in self.body.nodes[place].inputs
        ]

    def _read(self, text: str, port: Port) -> str:
        chain: list[int] = []
        texts = [text]
        while port[0] not in self.ops and self.body.nodes[port[0]].op in VIEWS and self.body.data[port[0]]:
            chain.append(port[0])
            texts.append(self.body.nodes[port[0]].inputs[0])
            port = self.body.data[port[0]][0]
        root = self.body.nodes[port[0]].name
        now = self.back.get(port) or with_node(texts.pop(), self.current.get(port[0], root))
        for view in reversed(chain):
            now = with_node(texts.pop(), self._view(view, now))
        return now

    def _view(self, view: int, text: str) -> str:
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
