"""Copies around uses of a state on the host: of the whole state, or of rows for each chunk of its update."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
from torch.fx import Graph, Node

from lowtide.frameworks.torch.emit.state_copies import STATE_TO_DEVICE, STATE_TO_HOST
from lowtide.frameworks.torch.emit.transfers import like
from lowtide.frameworks.torch.internals.nodes import compute_fake, storages_of, value_of
from lowtide.frameworks.torch.internals.tensors import storage_key

_SLICE = torch.ops.aten.slice.Tensor


def uses_of_storages(graph: Graph) -> dict[int, tuple[Node, Node]]:
    """Return the first and the last call that touches each storage."""
    found: dict[int, tuple[Node, Node]] = {}
    for node in graph.nodes:
        for key in storages_of(node, *node.all_input_nodes) if node.op == "call_function" else ():
            found[key] = found.get(key, (node, node))[0], node
    return found


def copy_around_uses(graph: Graph, state: Node, uses: tuple[Node, Node] | None, label: str) -> None:
    """Copy a state to the device before its first use, and back after its last; by rows for chunks of rows.

    The device copy takes over the placeholder's value, which shares storage with its views.
    """
    value: Any = value_of(state)
    rows = _rows_of(state)
    state.meta["val"] = like(value, value.device)
    name = "".join(letter if letter.isalnum() else "_" for letter in label)
    if rows:
        _copy_rows(graph, rows, name)
    elif uses is not None:
        first, last = uses
        copy = _copy_to_device(graph, state, first, value, name)
        state.replace_all_uses_with(copy, lambda user: user is not copy)
        _copy_back(graph, state, copy, last, name)


def _copy_to_device(graph: Graph, state: Node, before: Node, value: torch.Tensor, name: str) -> Node:
    with graph.inserting_before(before):
        copy = graph.create_node("call_function", STATE_TO_DEVICE, (state, value.device), name=f"{name}_on_device")
    copy.meta["val"] = value
    return copy


def _copy_back(graph: Graph, state: Node, copy: Node, after: Node, name: str) -> None:
    with graph.inserting_after(after):
        back = graph.create_node("call_function", STATE_TO_HOST, (state, copy), name=f"{name}_to_host")
    back.meta["val"] = None


@dataclass(frozen=True, slots=True)
class _Rows:
    view: Node
    aliases: Sequence[Node]
    """Results that overwrote these rows in place."""
    first: Node
    last: Node
    start: int
    end: int


def _rows_of(state: Node) -> list[_Rows]:
    """Return the disjoint rows that all uses of a state have, in order; empty with other uses."""
    found = [_rows_in(state, view) for view in state.users]
    rows = sorted((each for each in found if each is not None), key=lambda each: each.first)
    ends = sorted((each.start, each.end) for each in rows)
    disjoint = all(end <= start for (_, end), (start, _) in pairwise(ends))
    in_turn = all(one.last < other.first for one, other in pairwise(rows))
    return rows if len(rows) == len(found) > 1 and disjoint and in_turn else []


def _rows_in(state: Node, view: Node) -> _Rows | None:
    """Return a view's rows, or None unless it shows whole rows that are only overwritten."""
    if view.target is not _SLICE or view.kwargs or len(view.args) != 4 or view.args[1] != 0:
        return None
    value: torch.Tensor = value_of(view)
    start, end = view.args[2:]
    if not (isinstance(start, int) and isinstance(end, int) and value.is_contiguous() and view.users):
        return None
    key = storage_key(value_of(state))
    aliases, waiting = list[Node](), list(view.users)
    calls: set[Node] = set()
    while waiting:
        node = waiting.pop()
        if node in calls:
            continue
        calls.add(node)
        if key in storages_of(node):
            made = value_of(node)
            if not isinstance(made, torch.Tensor) or made.shape != value.shape:
                return None
            aliases.append(node)
            waiting += node.users
    return _Rows(view, aliases, min(calls), max(calls), start, end)


def _copy_rows(graph: Graph, rows: Sequence[_Rows], name: str) -> None:
    """Copy rows while the previous ones are in use."""
    for place, each in enumerate(rows):
        before = rows[max(0, place - 1)].first
        value: torch.Tensor = value_of(each.view)
        before.prepend(each.view)
        each.view.meta["val"] = compute_fake(each.view)
        own = like(value, value.device)
        copy = _copy_to_device(graph, each.view, before, own, f"{name}_from{each.start}")
        each.view.replace_all_uses_with(copy, lambda user, copy=copy: user is not copy)
        for alias in each.aliases:
            alias.meta["val"] = own
        _copy_back(graph, each.view, copy, each.last, f"{name}_from{each.start}")
