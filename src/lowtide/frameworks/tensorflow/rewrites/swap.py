"""Swaps in nodes: a value leaves the device for one of its readers and comes back right before."""

from collections.abc import Sequence
from dataclasses import dataclass

from lowtide.frameworks.tensorflow.graphs.attributes import of_texts, of_type, texts
from lowtide.frameworks.tensorflow.graphs.node_def import NodeDef
from lowtide.frameworks.tensorflow.operators.kinds import COPY_BACK, COPY_OUT
from lowtide.frameworks.tensorflow.rewrites.edited import EditedNodes
from lowtide.frameworks.tensorflow.rewrites.names import SWAPPED_IN, SWAPPED_OUT, node_of


@dataclass(frozen=True, slots=True, kw_only=True)
class SwappedInput:
    """An input of a node that comes back from the host."""

    node: str
    number: int
    type: int
    """The number of its data type."""
    out_trigger: str
    """Its first other reader, which waits until the value has left."""
    in_trigger: str
    """What the value waits for before it comes back."""


def copy_out(name: str, source: str, waits: Sequence[str], kind: int, group: str, device: str) -> NodeDef:
    """Return the node that copies a value to the host; `group` names the class that it is colocated with."""
    behind = [f"^{wait}" for wait in waits if wait != node_of(source)]
    return _copy(name, COPY_OUT, [source, *behind], kind, group, device)


def copy_back(name: str, source: str, waits: Sequence[str], kind: int, group: str, device: str) -> NodeDef:
    """Return the node that copies a value back from the host; see `copy_out`."""
    return _copy(name, COPY_BACK, [source, *(f"^{wait}" for wait in waits if wait != source)], kind, group, device)


def _copy(name: str, op: str, inputs: Sequence[str], kind: int, group: str, device: str) -> NodeDef:
    return NodeDef.make(name, op, inputs, {"T": of_type(kind), "_class": of_texts([f"loc@{group}"])}, device)


def add_swap(nodes: EditedNodes, swap: SwappedInput) -> bool:
    """Add the two nodes of a swap and their triggers; returns False where there is such a swap already.

    `swap_out_NODE_NUMBER` and `swap_in_NODE_NUMBER` are on the node's device and in a colocation class of its own, as
    Grappler makes them. Source: memory_optimizer.cc of TensorFlow, BuildSwapPair.
    """
    value = f"{swap.node}_{swap.number}"
    out, back = f"{SWAPPED_OUT}{value}", f"{SWAPPED_IN}{value}"
    if out in nodes or back in nodes:
        return False
    node = nodes.node(swap.node)
    nodes.add(copy_out(out, nodes.inputs(swap.node)[swap.number], (), swap.type, value, node.device))
    nodes.add(copy_back(back, out, [swap.in_trigger], swap.type, value, node.device))
    nodes.set_attribute(swap.node, "_class", of_texts([*texts(node.attribute("_class")), f"loc@{value}"]))
    nodes.set_input(swap.node, swap.number, back)
    nodes.wait_for(swap.out_trigger, out)
    return True
