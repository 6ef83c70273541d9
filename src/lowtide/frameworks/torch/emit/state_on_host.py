"""A training step with optimizer state on the host: each tensor is on the device only while its update uses it."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node

from lowtide.engine.planning.program import ALL
from lowtide.frameworks.torch.capture.step.optimizer_state import OptimizerState
from lowtide.frameworks.torch.capture.step.step_binding import TrainingStepBinding
from lowtide.frameworks.torch.emit.state_copies import STATE_TO_DEVICE, STATE_TO_HOST
from lowtide.frameworks.torch.emit.transfers import HOST, like
from lowtide.frameworks.torch.internals.distributed import local_part
from lowtide.frameworks.torch.internals.nodes import storages_of, value_of
from lowtide.frameworks.torch.internals.tensors import bytes_of, storage_key
from lowtide.frameworks.torch.reading.captured import Captured

_LEAST_BYTES = 1024
"""Smaller state stays on the device: a copy takes longer to start than to run."""


def put_state_on_host(captured: Captured, share: int) -> Captured | None:
    """Return a step with `share` eighths of its optimizer state on the host; None if none of it can be there.

    Parameters with the most state come first. Each state is copied to the device before its update and back after it.
    State of distributed parameters, of several devices and of other programs stays where it is.
    """
    binding = captured.binding
    if not isinstance(binding, TrainingStepBinding):
        return None
    chosen = _largest(binding.state, share)
    if not chosen:
        return None
    first = len(binding.modules.labels())
    places = [first + entry for entry in chosen]
    graph = Graph()
    graph.output(graph.graph_copy(captured.graph_module.graph, {}))
    placeholders = graph.find_nodes(op="placeholder")
    uses = _uses_of_storages(graph)
    for place in places:
        state = placeholders[place]
        _copy_around_uses(graph, state, uses.get(storage_key(value_of(state))), captured.inputs[place][0])
    forms = list(binding.forms)
    for place in places:
        dtype, shape, strides, device = forms[place]
        forms[place] = dtype, shape, strides, HOST if device.type == "cuda" else device
    return replace(
        captured,
        graph_module=GraphModule(captured.graph_module, graph),
        binding=replace(binding, on_host=frozenset(chosen), forms=tuple(forms)),
        on_host=tuple(places),
    )


def _largest(state: OptimizerState, share: int) -> list[int]:
    """Return the entries of the parameters with the most state, which have at least a share of all bytes together."""
    parameters = state.parameters()
    if any(local_part(parameter) is not parameter for parameter in parameters):
        return []
    devices = {parameter.device for parameter in parameters}
    if len(devices) != 1:
        return []
    by_parameter: dict[int, list[int]] = {}
    for place, (parameter, _, form) in enumerate(state.entries):
        if bytes_of(form) >= _LEAST_BYTES and form.device in devices:
            by_parameter.setdefault(parameter, []).append(place)

    def size(places: Sequence[int]) -> int:
        return sum(bytes_of(state.entries[place].form) for place in places)

    wanted = sum(map(size, by_parameter.values())) * share / ALL
    chosen: list[int] = []
    for places in sorted(by_parameter.values(), key=size, reverse=True):
        if size(chosen) >= wanted:
            break
        chosen += places
    return sorted(chosen)


def _uses_of_storages(graph: Graph) -> dict[int, tuple[Node, Node]]:
    """Return the first and the last call that touches each storage."""
    found: dict[int, tuple[Node, Node]] = {}
    for node in graph.nodes:
        for key in storages_of(node, *node.all_input_nodes) if node.op == "call_function" else ():
            found[key] = found.get(key, (node, node))[0], node
    return found


def _copy_around_uses(graph: Graph, state: Node, uses: tuple[Node, Node] | None, label: str) -> None:
    """Copy a state to the device before its first use, and back after its last one.

    The copy on the device takes over the value of the placeholder, with which views of it share a storage.
    """
    value: Any = value_of(state)
    state.meta["val"] = like(value, value.device)
    if uses is None:
        return
    first, last = uses
    name = "".join(letter if letter.isalnum() else "_" for letter in label)
    with graph.inserting_before(first):
        copy = graph.create_node(
            "call_function", STATE_TO_DEVICE, (state, torch.device(value.device)), name=f"{name}_on_device"
        )
    state.replace_all_uses_with(copy, lambda user: user is not copy)
    copy.meta["val"] = value
    with graph.inserting_after(last):
        back = graph.create_node("call_function", STATE_TO_HOST, (state, copy), name=f"{name}_to_host")
    back.meta["val"] = None
