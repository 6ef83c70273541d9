"""What Inductor's kernels keep on the host: copies that they make there, and those that a backward pass is given."""
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from collections.abc import Sequence
from typing import Any

from torch._inductor.ir import MultiOutput
from torch._inductor.virtualized import V

from lowtide.frameworks.torch.host_copies.emission import ON_HOST
from lowtide.frameworks.torch.host_copies.ops import COPY_TO_DEVICE, COPY_TO_HOST


def is_copy(node: Any) -> bool:
    """Tell whether a kernel starts a copy to the host or back."""
    return getattr(node.node, "op_overload", None) in (COPY_TO_HOST, COPY_TO_DEVICE)


def names_on_host(nodes: Sequence[Any]) -> set[str]:
    """Return the names of inputs and of buffers made by kernels that take nothing of the device's memory."""
    module: Any = V.graph.module
    inputs = module.graph.find_nodes(op="placeholder")
    names = {str(node.target) for node in inputs if ON_HOST in node.meta}
    made = {name for node in nodes if _is_to_host(node) for name in node.get_buffer_names()}
    for node in nodes:
        if isinstance(node.node, MultiOutput) and node.node.inputs[0].get_name() in made:
            names.update(node.get_buffer_names())
    return names | made


def _is_to_host(node: Any) -> bool:
    return getattr(node.node, "op_overload", None) == COPY_TO_HOST
