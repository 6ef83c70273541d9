"""What Inductor's kernels keep on the host: copies that they make there, and those that a backward pass is given."""

from collections.abc import Sequence

from lowtide.frameworks.torch.emit.transfers.emission import ON_HOST
from lowtide.frameworks.torch.emit.transfers.ops import COPY_TO_DEVICE, COPY_TO_HOST
from lowtide.frameworks.torch.internals.kernels import KernelNode, source_graph, unpacked_tuple


def is_copy(node: KernelNode) -> bool:
    """Tell whether a kernel starts a copy to the host or back."""
    return getattr(node.node, "op_overload", None) in (COPY_TO_HOST, COPY_TO_DEVICE)


def names_on_host(nodes: Sequence[KernelNode]) -> set[str]:
    """Return the names of inputs and of buffers made by kernels that take nothing of the device's memory."""
    inputs = source_graph().graph.find_nodes(op="placeholder")
    names = {str(node.target) for node in inputs if ON_HOST in node.meta}
    made = {name for node in nodes if _is_to_host(node) for name in node.get_buffer_names()}
    for node in nodes:
        if unpacked_tuple(node) in made:
            names.update(node.get_buffer_names())
    return names | made


def _is_to_host(node: KernelNode) -> bool:
    return getattr(node.node, "op_overload", None) == COPY_TO_HOST
