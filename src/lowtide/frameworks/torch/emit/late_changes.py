"""Delay in-place changes of a program's inputs until something depends on them.

A plan may count optimizer steps or decay weights long before gradients are known. An exception between would leave
parameters half updated. So these ops, and scalars computed from them, move behind all ops that do not depend on them.
Memory stays the same: they only overwrite tensors that are used later.
"""

from torch.fx import Graph, Node

from lowtide.frameworks.torch.emit.state_copies import STATE_TO_DEVICE
from lowtide.frameworks.torch.internals.nodes import is_symbol, storages_of
from lowtide.frameworks.torch.reading.effects import overwritten_storages, touched_storages


def delay_changes(graph: Graph) -> None:
    """Move ops that only overwrite inputs, and scalar ops, directly before the next dependent op."""
    copies = graph.find_nodes(op="call_function", target=STATE_TO_DEVICE)
    inputs = storages_of(*graph.find_nodes(op="placeholder"), *copies)
    following: dict[int, Node] = {}
    for node in reversed(list(graph.nodes)):
        if node.op != "call_function":
            continue
        touched = touched_storages(node)
        if is_symbol(node) or (touched and touched <= inputs and touched == overwritten_storages(node)):
            later = {*node.users, *(following[key] for key in touched if key in following)}
            if later:
                min(later).prepend(node)
        for key in touched:
            following[key] = node
