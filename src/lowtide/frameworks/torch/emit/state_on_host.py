"""A step with optimizer state on the host: on the device during its update only, or updated there."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from torch.fx import Graph, Node

from lowtide.core.index_spaces import BufferId
from lowtide.engine.graph import Graph as Engine
from lowtide.engine.offload.updates import Update
from lowtide.engine.planning.program import ALL
from lowtide.frameworks.torch.capture.step.optimizer_state import OptimizerState
from lowtide.frameworks.torch.capture.step.step_binding import TrainingStepBinding
from lowtide.frameworks.torch.emit.copied_state import copy_around_uses, uses_of_storages
from lowtide.frameworks.torch.emit.transfers import HOST
from lowtide.frameworks.torch.emit.updates_on_host import move_updates
from lowtide.frameworks.torch.internals.distributed import local_part
from lowtide.frameworks.torch.internals.nodes import graph_module, value_of
from lowtide.frameworks.torch.internals.tensors import bytes_of, storage_key
from lowtide.frameworks.torch.reading.captured import Captured
from lowtide.frameworks.torch.reading.read import Reading

_LEAST_BYTES = 1024
"""Smaller state stays on the device: starting a copy takes longer than running it."""


ChooseUpdates = Callable[[Engine, Sequence[BufferId]], list[Update]]
"""Returns the updates to run on the host, for a graph and its state there."""


def put_state_on_host(reading: Reading, share: int, choose: ChooseUpdates | None = None) -> Captured | None:
    """Return a step with `share` eighths of its optimizer state on the host; None if impossible.

    Parameters with the most state come first. Each state is copied to the device before its update and back afterwards,
    in rows if the update is in chunks of rows. Updates from `choose` run on the host instead, if all their tensors have
    one form; None without such updates. State of distributed parameters, several devices or other programs does not
    move.
    """
    captured = reading.captured
    binding = captured.binding
    if not isinstance(binding, TrainingStepBinding):
        return None
    chosen = _largest(binding.state, share)
    if not chosen:
        return None
    first = len(binding.modules.labels())
    places = [first + entry for entry in chosen]
    graph, copies = Graph(), dict[Node, Node]()
    graph.output(graph.graph_copy(captured.graph_module.graph, copies))
    placeholders = graph.find_nodes(op="placeholder")
    there = _move_updates(graph, copies, reading, places, choose) if choose is not None else set[int]()
    if choose is not None and not there:
        return None
    uses = uses_of_storages(graph)
    for place in places:
        if place in there:
            continue
        state = placeholders[place]
        copy_around_uses(graph, state, uses.get(storage_key(value_of(state))), captured.inputs[place][0])
    forms = list(binding.forms)
    for place in places:
        dtype, shape, strides, device = forms[place]
        forms[place] = dtype, shape, strides, HOST if device.type == "cuda" else device
    return replace(
        captured,
        graph_module=graph_module(captured.graph_module, graph),
        binding=replace(binding, on_host=frozenset(chosen), forms=tuple(forms)),
        on_host=tuple(places),
    )


def _move_updates(
    graph: Graph, copies: dict[Node, Node], reading: Reading, places: Sequence[int], choose: ChooseUpdates
) -> set[int]:
    """Move updates to the host. Return the positions of their state."""
    module, lowered = reading.captured.graph_module, reading.lowered
    placeholders = module.graph.find_nodes(op="placeholder")
    place_of = {lowered.buffers_of[placeholders[place]][0]: place for place in places}
    moved = move_updates(graph, copies, module, lowered, choose(reading.graph, list(place_of)))
    return {place_of[buffer] for update in moved for buffer in update.state}


def _largest(state: OptimizerState, share: int) -> list[int]:
    """Return state entries of the parameters with the most state, with a share of all bytes."""
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
