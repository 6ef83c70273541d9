"""Where nodes stand among the kernels of a program."""

from torch.fx import Graph, Node

from lowtide.frameworks.torch.internals.operators import is_element_wise, is_view


def kernel_places(graph: Graph, *, element_wise: bool) -> dict[Node, int]:
    """Return, per node, how many kernels run before it at most; a view runs none.

    Those that Inductor may take into others count only where `element_wise` says so.
    """
    places, kernels = dict[Node, int](), 0
    for node in graph.nodes:
        places[node] = kernels
        is_kernel = node.op == "call_function" and not is_view(node.target)
        kernels += is_kernel and (element_wise or not is_element_wise(node.target))
    return places
