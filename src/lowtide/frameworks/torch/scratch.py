"""Memory that kernels take for themselves while they run."""

from torch.fx import Node


def scratch_bytes(node: Node) -> int:
    """Return the bytes a node's kernel allocates besides its outputs and frees before it returns."""
    return 0
