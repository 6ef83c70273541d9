"""Plans back into graphs: an order as control edges, and what runs again as copies."""

from lowtide.errors import FingerprintError, UnsupportedError
from lowtide.frameworks.tensorflow.graphs.node_def import NodeDef
from lowtide.frameworks.tensorflow.reading.translation import TensorflowTranslation
from lowtide.frameworks.tensorflow.rewrites.runs import nodes_in_order
from lowtide.plan import Plan, StepKind, verify


def planned_nodes(translation: TensorflowTranslation, plan: Plan) -> list[NodeDef]:
    """Return the nodes of a graph that does what a plan says, step by step, and nothing beside.

    Every op waits for the one before it by a control edge; an op that runs again is a copy `Recomputed/NAME`. Memory
    is freed by TensorFlow itself, after the last use. Raises FingerprintError for a plan of another graph,
    UnsupportedError for one that copies, VerificationError for one that breaks the program.
    """
    check_plan(translation, plan)
    return nodes_in_order(translation.body, translation.nodes, plan.order().tolist())


def check_plan(translation: TensorflowTranslation, plan: Plan) -> None:
    """Raise the errors of `planned_nodes`."""
    if plan.graph_fingerprint != translation.graph.fingerprint:
        raise FingerprintError(
            "the plan was made for another graph; plan this one with the same feeds, fetches, shapes and --dim sizes"
        )
    if (plan.kinds > StepKind.FREE).any():
        raise UnsupportedError(
            "the plan copies buffers to a host by addresses, which a GraphDef cannot say; write a plan (.plan.json), "
            "or swap with lowtide.tensorflow.optimize"
        )
    verify(translation.graph, plan, check_capacity=False)
