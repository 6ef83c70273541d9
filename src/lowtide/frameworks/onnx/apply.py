"""Plans back into ONNX models: the nodes in another order, and nothing else changed."""

from collections.abc import Sequence

from onnx import GraphProto, ModelProto

from lowtide.errors import FingerprintError, UnsupportedError
from lowtide.frameworks.onnx.operators.nodes import input_names, subgraphs_of
from lowtide.frameworks.onnx.reading.translation import Translation
from lowtide.plan import Plan, StepKind, verify


def reorder_model(model: ModelProto, translation: Translation, plan: Plan) -> ModelProto:
    """Return a copy of the model with its nodes, and those of planned subgraphs, in the plan's order.

    Views and constants stand right before their first reader. Everything but the order stays as it is, unknown fields
    included. Raises FingerprintError for a plan of another graph, UnsupportedError for one that is more than an order,
    VerificationError for one that breaks the program.
    """
    _check_plan(translation, plan)
    verify(translation.graph, plan, check_capacity=False)
    reordered = ModelProto()
    reordered.CopyFrom(model)
    _reorder(reordered.graph, translation, plan)
    return reordered


def _check_plan(translation: Translation, plan: Plan) -> None:
    if plan.graph_fingerprint != translation.graph.fingerprint:
        raise FingerprintError("the plan was made for another graph; plan this model with the same --dim sizes")
    if (plan.kinds > StepKind.FREE).any():
        raise UnsupportedError(
            "the plan copies buffers between memories, which an ONNX file cannot say; plan without offload"
        )
    if len(plan.order()) != translation.graph.n_ops:
        raise UnsupportedError("the plan runs some ops twice, which an ONNX file cannot say; allow only reorder")


def _reorder(graph: GraphProto, translation: Translation, plan: Plan) -> None:
    for name, inner in plan.callees.items():
        body = translation.bodies.get(name)
        if body is not None:
            _check_plan(body.translation, inner)
            _reorder(dict(subgraphs_of(graph.node[body.node]))[body.label], body.translation, inner)
    order: list[int] = plan.order().tolist()
    nodes = [graph.node[position] for position in node_order(graph, [translation.nodes_of_ops[op] for op in order])]
    copies = GraphProto(node=nodes)
    del graph.node[:]
    graph.node.extend(copies.node)


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
