"""Plans back into graphs: an order as control edges, and what runs again as copies."""

from collections.abc import Iterator

from lowtide.core.errors import FingerprintError
from lowtide.engine.analysis import simulate
from lowtide.engine.plan import HOME, Plan, StepKind, verify
from lowtide.frameworks.tensorflow.graphs.graph_def import GraphDef
from lowtide.frameworks.tensorflow.graphs.node_def import NodeDef
from lowtide.frameworks.tensorflow.reading.fused_pairs import side_by_side
from lowtide.frameworks.tensorflow.reading.translation import TensorflowTranslation
from lowtide.frameworks.tensorflow.rewrites.runs import PortStep, nodes_in_order


def planned_graph(graph: GraphDef, translation: TensorflowTranslation, plan: Plan) -> GraphDef:
    """Return a graph that does what a plan says, step by step, and nothing beside.

    Every op waits for the one before it by a control edge; an op that runs again is a copy `Recomputed/NAME`. The
    bodies of functions are put in order in the same way where the plan moves anything in them. A function
    that is called with arguments of several sizes is ordered for those that need most. Memory is freed by TensorFlow
    itself, after the last use. What a plan copies to a host leaves by `swap_out_NAME_OUTPUT` and comes back by
    `swap_in_NAME_OUTPUT`. Raises FingerprintError for a plan of another graph, VerificationError for one that breaks
    the program.
    """
    _check_plan(translation, plan)
    verify(translation.graph, plan, check_capacity=False)
    made = graph.with_nodes(_ordered(translation, plan))
    for name, (inner, its_plan) in sorted(_planned_functions(translation, plan).items()):
        made = made.with_function(graph.functions[name].with_nodes(_ordered(inner, its_plan)))
    return made


def _ordered(translation: TensorflowTranslation, plan: Plan) -> list[NodeDef]:
    steps = side_by_side(list(_steps(translation, plan)), translation.pairs)
    return nodes_in_order(translation.body, translation.nodes, steps)


def _steps(translation: TensorflowTranslation, plan: Plan) -> Iterator[int | PortStep]:
    """Yield what a plan runs, by node, and what it copies: those frees of a device are of use that follow a copy."""
    for kind, target, space in zip(plan.kinds.tolist(), plan.targets.tolist(), plan.spaces.tolist(), strict=True):
        if kind == StepKind.RUN:
            yield translation.nodes[target]
        elif kind != StepKind.FREE or space in (HOME, int(translation.graph.buffer_spaces[target])):
            yield PortStep(StepKind(kind), translation.ports[int(target)])


def _planned_functions(translation: TensorflowTranslation, plan: Plan) -> dict[str, tuple[TensorflowTranslation, Plan]]:
    """Return the functions whose bodies a plan changes, by name, each with the plan for the calls that need most."""
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
            "the plan was made for another graph; plan this one with the same feeds, fetches, shapes and --dim sizes"
        )
