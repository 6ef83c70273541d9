"""Plans back into ONNX models: the nodes in another order, and nothing else changed."""

from collections.abc import Sequence

from onnx import GraphProto, ModelProto

from lowtide.errors import FingerprintError, UnsupportedError
from lowtide.frameworks.onnx.loading.reordered import NodeOrder
from lowtide.frameworks.onnx.operators.nodes import input_names, subgraphs_of
from lowtide.frameworks.onnx.reading.translation import Translation
from lowtide.plan import Plan, StepKind, verify


def planned_order(model: ModelProto, translation: Translation, plan: Plan) -> NodeOrder:
    """Return the order of a model's nodes, and of those of planned subgraphs, that a plan asks for.

    Views and constants stand right before their first reader. Raises FingerprintError for a plan of another graph,
    UnsupportedError for one that is more than an order, VerificationError for one that breaks the program.
    """
    _check_plan(translation, plan)
    verify(translation.graph, plan, check_capacity=False)
    return _order(model.graph, translation, plan)


def _check_plan(translation: Translation, plan: Plan) -> None:
    if plan.graph_fingerprint != translation.graph.fingerprint:
        raise FingerprintError("the plan was made for another graph; plan this model with the same --dim sizes")
    if (plan.kinds > StepKind.FREE).any():
        raise UnsupportedError(
            "the plan copies buffers between memories, which an ONNX file cannot say; plan without offload"
        )
    if len(plan.order()) != translation.graph.n_ops:
        raise UnsupportedError("the plan runs some ops twice, which an ONNX file cannot say; allow only reorder")


def _order(graph: GraphProto, translation: Translation, plan: Plan) -> NodeOrder:
    bodies: dict[tuple[int, str], NodeOrder] = {}
    for name, inner in plan.callees.items():
        body = translation.bodies.get(name)
        if body is not None:
            _check_plan(body.translation, inner)
            called = dict(subgraphs_of(graph.node[body.node]))[body.label]
            bodies[body.node, body.label] = _order(called, body.translation, inner)
    order: list[int] = plan.order().tolist()
    return NodeOrder(node_order(graph, [translation.nodes_of_ops[op] for op in order]), bodies)


def node_order(graph: GraphProto, ops: Sequence[tuple[int, ...]]) -> list[int]:
    """Return the positions of all nodes so that ops come in the given order and what they need comes just before.

    `ops` holds the nodes of every op; the graph's other nodes are views and constants.
    """
    lazy = set(range(len(graph.node))).difference(*ops)
    makers = {name: position for position in sorted(lazy) for name in graph.node[position].output if name}
    order: list[int] = []
    placed: set[int] = set()

    def place(node: int) -> None:
        stack = [node]
        while stack:
            position = stack[-1]
            needed = [makers[name] for name in input_names(graph.node[position]) if name in makers]
            missing = [maker for maker in dict.fromkeys(needed) if maker not in placed]
            if missing:
                stack.extend(reversed(missing))
                continue
            stack.pop()
            if position not in placed:
                placed.add(position)
                order.append(position)

    for members in ops:
        for position in members:
            place(position)
    for position in sorted(lazy - placed):
        place(position)
    return order
