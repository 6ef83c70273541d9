"""Apply plans to ONNX models by reordering and repeating nodes."""

from collections.abc import Sequence

from onnx import GraphProto, ModelProto

from lowtide.core.errors import FingerprintError, UnsupportedError
from lowtide.core.index_spaces import OpId
from lowtide.engine.plan import Plan, StepKind, verify
from lowtide.frameworks.onnx.loading.rewrite import NodeOrder
from lowtide.frameworks.onnx.operators.nodes import NewNames, input_names, subgraphs_of
from lowtide.frameworks.onnx.reading.translation import Translation


def planned_order(model: ModelProto, translation: Translation, plan: Plan) -> NodeOrder:
    """Return the node order, subgraphs included, that follows a plan; raises as `OnnxModel.apply`."""
    _check_plan(translation, plan)
    verify(translation.graph, plan, check_capacity=False)
    return _order(model.graph, translation, plan)


def _check_plan(translation: Translation, plan: Plan) -> None:
    if plan.graph_fingerprint != translation.graph.fingerprint:
        raise FingerprintError("the plan was made for another graph; plan this model with the same --dim sizes")
    if (plan.kinds > StepKind.FREE).any():
        raise UnsupportedError(
            "the plan copies buffers between memories, which ONNX cannot express; plan without offload"
        )


def _order(graph: GraphProto, translation: Translation, plan: Plan) -> NodeOrder:
    bodies: dict[tuple[int, str], NodeOrder] = {}
    for name, inner in plan.callees.items():
        body = translation.bodies.get(name)
        if body is not None:
            _check_plan(body.translation, inner)
            called = dict(subgraphs_of(graph.node[body.node]))[body.label]
            bodies[body.node, body.label] = _order(called, body.translation, inner)
    ops: list[OpId] = plan.order().tolist()
    if ops == list(range(translation.graph.n_ops)):  # program order: views stay
        return NodeOrder(range(len(graph.node)), {}, bodies)
    placing = _Placing(graph, translation.nodes_of_ops)
    last = {op: place for place, op in enumerate(ops)}
    for place, op in enumerate(ops):
        placing.run(op, last=last[op] == place)
    return NodeOrder(*placing.finish(), bodies)


class _Placing:
    """Places ops in the plan's order, views and constants before their readers.

    Recomputed values get new names, so that the runtime frees the earlier ones. A graph output's last value keeps its
    name.
    """

    def __init__(self, graph: GraphProto, nodes_of_ops: Sequence[tuple[int, ...]]) -> None:
        self._nodes = graph.node
        self._nodes_of_ops = nodes_of_ops
        self._lazy = sorted(set(range(len(graph.node))).difference(*nodes_of_ops))
        self._makers = {name: position for position in self._lazy for name in graph.node[position].output if name}
        self._outputs = frozenset(value.name for value in graph.output)
        self._new_names = NewNames(graph)
        self._has_run: set[int] = set()
        self._reruns = 0
        self._made_from: dict[int, tuple[str, ...]] = {}
        """By view, input names at its last placement."""
        self._checked_at: dict[int, int] = {}
        """By view, recomputed runs before its last check."""
        self._now: dict[str, str] = {}
        self._order: list[int] = []
        self._names: dict[int, dict[str, str]] = {}

    def run(self, op: OpId, *, last: bool) -> None:
        """Place an op's nodes; shape nodes run only once."""
        again = op in self._has_run
        self._reruns += again
        self._has_run.add(op)
        for position in self._nodes_of_ops[op][: 1 if again else None]:
            self._bring(self._views_of(position))
            self._place(position, again=again, last=last)

    def finish(self) -> tuple[list[int], dict[int, dict[str, str]]]:
        self._bring([position for position in self._lazy if position not in self._made_from])
        return self._order, self._names

    def _views_of(self, reader: int) -> list[int]:
        return [self._makers[name] for name in input_names(self._nodes[reader]) if name in self._makers]

    def _bring(self, views: Sequence[int]) -> None:
        """Place missing or outdated views and constants."""
        stack = [(view, False) for view in reversed(views)]
        while stack:
            position, inputs_done = stack.pop()
            if self._checked_at.get(position) == self._reruns:
                continue
            if not inputs_done:
                stack.append((position, True))
                stack.extend((view, False) for view in reversed(self._views_of(position)))
                continue
            made_from = tuple(self._now.get(name, name) for name in input_names(self._nodes[position]))
            if self._made_from.get(position) != made_from:
                self._place(position, again=position in self._made_from)
                self._made_from[position] = made_from
            self._checked_at[position] = self._reruns

    def _place(self, position: int, *, again: bool, last: bool = True) -> None:
        node = self._nodes[position]
        names = {name: self._now[name] for name in input_names(node) if name in self._now}
        for name in filter(None, node.output):
            is_new = not last if name in self._outputs else again
            self._now.pop(name, None)
            if is_new:
                names[name] = self._now[name] = self._new_names.new(name)
        if names:
            self._names[len(self._order)] = names
        self._order.append(position)
