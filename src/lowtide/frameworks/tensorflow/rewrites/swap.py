"""Swaps in nodes: a value leaves the device for one of its readers and comes back right before."""

from dataclasses import dataclass

from lowtide.frameworks.tensorflow.graphs.attributes import of_texts, of_type, texts
from lowtide.frameworks.tensorflow.graphs.node_def import NodeDef
from lowtide.frameworks.tensorflow.rewrites.edited import EditedNodes
from lowtide.frameworks.tensorflow.rewrites.names import SWAPPED_IN, SWAPPED_OUT


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


def add_swap(nodes: EditedNodes, swap: SwappedInput) -> bool:
    """Add the two nodes of a swap and their triggers; returns False where there is such a swap already.

    `swap_out_NODE_NUMBER` and `swap_in_NODE_NUMBER` are on the node's device and in a colocation class of its own, as
    Grappler makes them. Source: memory_optimizer.cc of TensorFlow, BuildSwapPair.
    """
    value = f"{swap.node}_{swap.number}"
    out, back = f"{SWAPPED_OUT}{value}", f"{SWAPPED_IN}{value}"
    if out in nodes or back in nodes:
        return False
    node, group = nodes.node(swap.node), f"loc@{value}"
    attributes = {"T": of_type(swap.type), "_class": of_texts([group])}
    nodes.add(NodeDef.make(out, "_CopyFromGpuToHost", [nodes.inputs(swap.node)[swap.number]], attributes, node.device))
    nodes.add(NodeDef.make(back, "_CopyFromHostToGpu", [out, f"^{swap.in_trigger}"], attributes, node.device))
    nodes.set_attribute(swap.node, "_class", of_texts([*texts(node.attribute("_class")), group]))
    nodes.set_input(swap.node, swap.number, back)
    nodes.wait_for(swap.out_trigger, out)
    return True
