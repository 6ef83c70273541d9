"""Sums of many values in nodes: a temporary variable that starts from zero and takes one value after the other."""

from collections.abc import Mapping

from lowtide.frameworks.tensorflow.graphs.attributes import Shape, integer, of_bool, of_shape, of_text, of_type
from lowtide.frameworks.tensorflow.graphs.node_def import NodeDef
from lowtide.frameworks.tensorflow.rewrites.edited import EditedNodes
from lowtide.frameworks.tensorflow.rewrites.names import node_of


def accumulate_in_nodes(nodes: EditedNodes, name: str, sizes: Shape, place: Mapping[str, int]) -> list[NodeDef]:
    """Make a sum an accumulation, and return the nodes that are new.

    The temporary `NAME/tmp_var` is made after the first value and what had to come before that one, and zeroed; each
    value is added in place; the sum itself becomes what destroys the temporary, so that readers find it under its name.
    `place` says which node comes first. Source: memory_optimizer.cc of TensorFlow, SchedulingPass.
    """
    node, inputs = nodes.node(name), nodes.inputs(name)
    values = [text for text in inputs if not text.startswith("^")]
    waits = [text for text in reversed(inputs) if text.startswith("^")]
    first = min(values, key=lambda text: place[node_of(text)])
    starts_at = place[node_of(first)]
    kind = of_type(integer(node.attribute("T")))
    variable, zeros, initializer = (f"{name}/tmp_var{ending}" for ending in ("", "_zeros", "_initializer"))
    early = [text for text in waits if place[node_of(text)] < starts_at]
    late = [text for text in waits if place[node_of(text)] >= starts_at]
    held = {"dtype": kind, "shape": of_shape(sizes), "var_name": of_text(variable)}
    unlocked = {"T": kind, "use_locking": of_bool(False), "validate_shape": of_bool(False)}
    made = [
        NodeDef.make(variable, "TemporaryVariable", [*early, f"^{node_of(first)}"], held, node.device),
        NodeDef.make(zeros, "ZerosLike", [first], {"T": kind}, node.device),
        NodeDef.make(initializer, "Assign", [variable, zeros], unlocked, node.device),
    ]
    locked = {"T": kind, "use_locking": of_bool(True)}
    steps = [
        NodeDef.make(f"{name}/tmp_var_accum_{number}", "AssignAdd", [initializer, text], locked, node.device)
        for number, text in enumerate(values)
    ]
    for each in (*made, *steps):
        nodes.add(each)
    ending = [initializer, *(f"^{each.name}" for each in steps), *late]
    destroyed = {"T": kind, "var_name": of_text(variable)}
    nodes.add(NodeDef.make(name, "DestroyTemporaryVariable", ending, destroyed, node.device))
    return [*made, *steps]
