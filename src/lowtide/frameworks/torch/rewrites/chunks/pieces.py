"""Tensors that are put together of pieces, and what only looks at them."""

import torch
from torch.fx import Node

from lowtide.frameworks.torch.internals.nodes import value_of

aten = torch.ops.aten


def looked_at(node: Node) -> list[Node]:
    """Return a node, and the nodes of the same tensor that it is a view of, the last one no view any more."""
    found = [node]
    while True:
        target, source = found[-1].target, found[-1].args[0] if found[-1].args else None
        if target in (aten.alias.default, aten.detach.default) and isinstance(source, Node):
            found.append(source)
        elif target is aten.t.default and isinstance(source, Node) and source.target is aten.t.default:
            found += [source, *source.all_input_nodes]
        else:
            return found


def pieces_of(node: Node) -> list[Node]:
    """Return the pieces that a tensor is put together of, row after row; empty where it is not."""
    whole = looked_at(node)[-1]
    return whole.all_input_nodes if whole.target is aten.cat.default and whole.args[1:] in ((), (0,)) else []


def piece_of_rows(node: Node, first: int, last: int) -> Node | None:
    """Return the piece that is some rows of a tensor; None where no piece is just these rows."""
    start = 0
    for piece in pieces_of(node):
        end = start + value_of(piece).shape[0]
        if (start, end) == (first, last):
            return piece
        start = end
    return None
