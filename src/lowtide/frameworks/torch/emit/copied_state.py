"""Copies of state and parameters on the host: before their uses, and back after their update."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
from torch.fx import Graph, Node

from lowtide.frameworks.torch.emit.state_copies import (
    GRADIENT_FROM_HOST,
    PARAMETER_FROM_HOST,
    STATE_TO_DEVICE,
    STATE_TO_HOST,
)
from lowtide.frameworks.torch.emit.transfers import like
from lowtide.frameworks.torch.internals.nodes import compute_fake, storages_of, value_of
from lowtide.frameworks.torch.internals.tensors import storage_key
from lowtide.frameworks.torch.reading.effects import overwritten_storages, runs_on_host, touched_storages

_SLICE = torch.ops.aten.slice.Tensor


def calls_by_storage(graph: Graph) -> dict[int, list[Node]]:
    found: dict[int, list[Node]] = {}
    for node in graph.nodes:
        for key in touched_storages(node) if node.op == "call_function" else ():
            found.setdefault(key, []).append(node)
    return found


def copy_state(graph: Graph, state: Node, calls: Sequence[Node], label: str) -> None:
    """Copy a state to the device before its first use, and back after its last; by rows for chunks of rows."""
    value: Any = value_of(state)
    users = [user for user in state.users if user in calls]
    rows = _rows_of(state, users)
    state.meta["val"] = like(value, value.device)
    if rows:
        _copy_rows(graph, rows, node_name(label))
    elif calls:
        copy = _copy_to_device(graph, state, calls[0], value, node_name(label))
        state.replace_all_uses_with(copy, users.__contains__)
        copy_back(graph, state, copy, calls[-1], label)


def copy_parameter(graph: Graph, parameter: Node, calls: Sequence[Node], label: str) -> None:
    """Copy a parameter to the device before its first use and, if an op overwrites it there, again before that.

    Updates on the host use the parameter itself. Calls after them read another copy.
    """
    key = storage_key(value_of(parameter))
    calls = _without_detached(graph, parameter, calls)
    changes = [place for place, call in enumerate(calls) if key in overwritten_storages(call)]
    before, after = calls[: changes[0]] if changes else calls, calls[changes[0] :] if changes else []
    _copy_for_reading(graph, parameter, before, label)
    views = [call for call in before if key in storages_of(call)]
    for view in reversed(views):
        if not view.users:
            graph.erase_node(view)
            views.remove(view)
    later = [call for call in after if not runs_on_host(call)]
    if any(key in overwritten_storages(call) for call in later):
        for view in views:
            later[0].prepend(view)
        copy_state(graph, parameter, [*views, *later], label)
    else:
        _copy_for_reading(graph, parameter, [*views, *later] if later else [], f"{label}_updated")


def _without_detached(graph: Graph, parameter: Node, calls: Sequence[Node]) -> list[Node]:
    others: list[Node] = []
    for call in calls:
        if call.target is torch.ops.aten.detach.default and call.args[0] is parameter:
            call.replace_all_uses_with(parameter)
            graph.erase_node(call)
        else:
            others.append(call)
    return others


def _copy_for_reading(graph: Graph, parameter: Node, calls: Sequence[Node], label: str) -> None:
    """Let calls read a copy on the device, made directly before the first of them that reads."""
    value: torch.Tensor = value_of(parameter)
    key = storage_key(value)
    first = next((call for call in calls if key not in storages_of(call)), None)
    if first is None:
        return
    with graph.inserting_before(first):
        copy = graph.create_node(
            "call_function", PARAMETER_FROM_HOST, (parameter, value.device), name=f"{node_name(label)}_for_reading"
        )
    copy.meta["val"] = like(value, value.device)
    there = {parameter: copy}
    for call in calls:
        if key in storages_of(call):
            with graph.inserting_before(max(call, first)):
                view = there[call] = graph.node_copy(call, lambda node: there.get(node, node))
            view.meta["val"] = compute_fake(view)
        else:
            for given in call.all_input_nodes:
                if given in there:
                    call.replace_input_with(given, there[given])


def node_name(label: str) -> str:
    return "".join(letter if letter.isalnum() else "_" for letter in label)


def copy_gradient(graph: Graph, gradient: Node, calls: Sequence[Node], label: str) -> None:
    """Copy a gradient to the device before its first use."""
    value: Any = value_of(gradient)
    users = [user for user in gradient.users if user in calls]
    gradient.meta["val"] = like(value, value.device)
    copy = _copy_to_device(graph, gradient, calls[0], value, node_name(label), GRADIENT_FROM_HOST)
    gradient.replace_all_uses_with(copy, users.__contains__)


def _copy_to_device(
    graph: Graph, state: Node, before: Node, value: torch.Tensor, name: str, operator: Any = STATE_TO_DEVICE
) -> Node:
    with graph.inserting_before(before):
        copy = graph.create_node("call_function", operator, (state, value.device), name=f"{name}_on_device")
    copy.meta["val"] = value
    return copy


def copy_back(graph: Graph, state: Node, copy: Node, after: Node, label: str) -> None:
    """Copy contents from the device over a tensor on the host, directly after a node."""
    with graph.inserting_after(after):
        back = graph.create_node("call_function", STATE_TO_HOST, (state, copy), name=f"{node_name(label)}_to_host")
    back.meta["val"] = None


@dataclass(frozen=True, slots=True)
class _Rows:
    view: Node
    aliases: Sequence[Node]
    first: Node
    last: Node
    start: int
    end: int


def _rows_of(state: Node, users: Sequence[Node]) -> list[_Rows]:
    """Return the disjoint rows that all uses of a state have; empty with other uses."""
    found = [_rows_in(state, view) for view in users]
    rows = sorted((each for each in found if each is not None), key=lambda each: each.first)
    ends = sorted((each.start, each.end) for each in rows)
    disjoint = all(end <= start for (_, end), (start, _) in pairwise(ends))
    in_turn = all(one.last < other.first for one, other in pairwise(rows))
    return rows if len(rows) == len(found) > 1 and disjoint and in_turn else []


def _rows_in(state: Node, view: Node) -> _Rows | None:
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
        copy_back(graph, each.view, copy, each.last, f"{name}_from{each.start}")
