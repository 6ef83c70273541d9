"""Rewritten graphs as functions: called as the traced one was, on the same variables."""

from collections.abc import Callable, Sequence
from typing import Any

from lowtide.core.errors import UnsupportedError, one_line
from lowtide.frameworks.tensorflow.graphs.graph_def import GraphDef
from lowtide.frameworks.tensorflow.running.session import graph_message, tensorflow


def function_like(concrete: Any, graph: GraphDef) -> Callable[[Sequence[Any]], list[Any]]:
    """Return a function that runs a graph in the place of a ConcreteFunction's own, from its tensors to its results.

    The graph has the nodes of the traced one under their names, and may have more. It takes the arguments as a flat
    list, and gives the results as one. Variables that the traced function captured are the same here.
    Raises UnsupportedError where TensorFlow refuses the graph.
    """
    traced = concrete.graph
    message = graph_message(graph)

    def imported() -> None:
        tf = tensorflow()
        here = tf.compat.v1.get_default_graph()
        captured = {inner.name: here.capture(outer) for outer, inner in traced.captures}
        tf.import_graph_def(message, name="", input_map=captured)

    try:
        wrapped = tensorflow().compat.v1.wrap_function(imported, [])
        made = wrapped.graph
        arguments = traced.inputs[: len(traced.inputs) - len(concrete.captured_inputs)]
        results = [made.get_tensor_by_name(tensor.name) for tensor in traced.outputs]
        effects = [made.get_operation_by_name(operation.name) for operation in traced.control_outputs]
        pruned = wrapped.prune([made.get_tensor_by_name(tensor.name) for tensor in arguments], [*results, *effects])
    except Exception as error:  # TensorFlow raises several types of its own
        raise UnsupportedError(f"TensorFlow refuses the planned graph: {one_line(error)}") from None

    def run(tensors: Sequence[Any]) -> list[Any]:
        return list(pruned(*tensors))[: len(results)]

    return run
